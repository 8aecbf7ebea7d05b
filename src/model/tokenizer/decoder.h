#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace dak {

/// A stretch of one token's text on its way through the decoder's steps. Valid UTF-8.
struct Fragment {
    std::string text;
    bool first = true;  ///< Begins its token.
    bool last = true;   ///< Ends its token.
};

/// One step's state while a sequence of tokens goes through it.
class DecoderStage {
  public:
    virtual ~DecoderStage() = default;
    virtual void push(Fragment fragment) = 0;
    /// Nothing more will be pushed.
    virtual void finish() = 0;

    void set_next(DecoderStage* next) { next_ = next; }

  protected:
    DecoderStage& next() { return *next_; }

  private:
    DecoderStage* next_ = nullptr;
};

/// One decoding: tokens go in one by one, text comes out as soon as no later token can change it.
class DecoderRun {
  public:
    /// The last stage passes everything on to the run's output.
    explicit DecoderRun(std::vector<std::unique_ptr<DecoderStage>> stages);

    std::string push(std::string_view token);
    std::string finish();

  private:
    std::vector<std::unique_ptr<DecoderStage>> stages_;
    std::unique_ptr<std::string> output_;  // where the last stage writes; stays put when moved
};

/// The "decoder" of a tokenizer file: steps that turn tokens into text. Immutable and thread-safe.
class Decoder {
  public:
    class Step {
      public:
        virtual ~Step() = default;
        /// A fresh stage, which may refer to this step.
        virtual std::unique_ptr<DecoderStage> start() const = 0;
    };

    /// `decoder` may be null: tokens are then joined by spaces. Throws Error naming what is not
    /// supported.
    static Decoder parse(const Json* decoder, const std::string& where);

    /// The run refers to this decoder.
    DecoderRun start() const;

  private:
    void add(const Json& decoder, const std::string& where);

    std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace dak
