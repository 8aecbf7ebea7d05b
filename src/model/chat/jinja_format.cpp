#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/chat/jinja_operators.h"

namespace dak::jinja {

namespace {

/// Longest width or precision in a % format; more is no formatting.
constexpr int64_t kMaxFormatWidth = 10000;

/// One %-conversion: its flags, width, precision and letter.
struct Conversion {
    std::string flags;
    int64_t width = 0;
    std::optional<int64_t> precision;
    char letter = '\0';

    bool has(char flag) const { return flags.find(flag) != flags.npos; }
};

class PercentFormatter {
  public:
    PercentFormatter(std::string_view format, const Value& values)
        : format_(format), values_(values), tuple_(values.as<Sequence>()) {
        if (tuple_ && tuple_->kind != Sequence::Kind::kTuple) tuple_ = nullptr;
    }

    std::string run() {
        while (position_ < format_.size()) {
            const size_t percent = std::min(format_.find('%', position_), format_.size());
            out_ += format_.substr(position_, percent - position_);
            position_ = percent + 1;
            if (percent < format_.size()) convert();
            check_string_size(out_.size());
        }
        // Python takes anything with items as a mapping, whose entries need not all be used.
        const auto* sequence = values_.as<Sequence>();
        const bool mapping = sequence ? !tuple_ && sequence->kind <= Sequence::Kind::kRange
                                      : values_.is<Dict>() || values_.is<Undefined>();
        const size_t given = tuple_ ? tuple_->items.size() : 1;
        require(mapping || used_ >= given, "not all arguments converted by the % format");
        return std::move(out_);
    }

  private:
    char next() {
        require(position_ < format_.size(), "incomplete % format");
        return format_[position_++];
    }

    int64_t read_number(char first) {
        int64_t number = 0;
        for (char c = first;; c = next()) {
            if (c < '0' || c > '9') {
                --position_;
                return number;
            }
            number = number * 10 + (c - '0');
            require(number <= kMaxFormatWidth, "a % format is wider than {}", kMaxFormatWidth);
        }
    }

    void convert() {
        Conversion conversion;
        std::optional<Value> named;
        char c = next();
        if (c == '(') {
            const size_t end = format_.find(')', position_);
            require(end != format_.npos, "incomplete % format");
            const auto* dict = values_.as<Dict>();
            require(dict != nullptr, "a % format with names needs a mapping");
            const std::string key(format_.substr(position_, end - position_));
            const Value* value = dict->find(Value(key));
            require(value != nullptr, "the % format's name {} has no value", quote(key));
            named = *value;
            position_ = end + 1;
            c = next();
        }
        for (; std::string_view("-+ #0").find(c) != std::string_view::npos; c = next()) {
            conversion.flags += c;
        }
        conversion.width = read_number(c);
        if ((c = next()) == '.') {
            conversion.precision = read_number(next());
            c = next();
        }
        conversion.letter = c;
        if (c == '%') {
            out_ += '%';
        } else {
            add(conversion, named ? *named : take());
        }
    }

    Value take() {
        const size_t index = used_++;
        if (tuple_ && index < tuple_->items.size()) return tuple_->items[index];
        require(!tuple_ && index == 0, "not enough arguments for the % format");
        return values_;
    }

    void add(const Conversion& conversion, const Value& value) {
        static constexpr std::string_view kIntegers = "diuxXo";
        static constexpr std::string_view kFloats = "eEfFgG";
        const char letter = conversion.letter;
        std::string text;
        bool numeric = true;
        if (letter == 's' || letter == 'r') {
            text = letter == 's' ? value.text() : value.repr();
            if (conversion.precision) text.resize(byte_offset(text, *conversion.precision));
            numeric = false;
        } else if (kIntegers.find(letter) != kIntegers.npos) {
            text = integer_text(conversion, value);
        } else if (kFloats.find(letter) != kFloats.npos) {
            text = float_digits(conversion, value);
        } else {
            fail("the % format '%{}' is not supported", letter);
        }
        if (numeric && text.front() != '-' && (conversion.has('+') || conversion.has(' '))) {
            text.insert(text.begin(), conversion.has('+') ? '+' : ' ');
        }
        const bool sign =
            numeric && std::string_view("+- ").find(text.front()) != std::string_view::npos;
        if (conversion.has('-')) {
            out_ += pad(text, conversion.width, " ", Side::kRight);
        } else if (conversion.has('0') && numeric &&
                   std::isdigit(static_cast<unsigned char>(text.back()))) {
            out_ += text.substr(0, sign) + pad(std::string_view(text).substr(sign),
                                               conversion.width - sign, "0", Side::kLeft);
        } else {
            out_ += pad(text, conversion.width, " ", Side::kLeft);
        }
    }

    static std::string integer_text(const Conversion& conversion, const Value& value) {
        auto integer = value.as_integer();
        const bool decimal =
            std::string_view("diu").find(conversion.letter) != std::string_view::npos;
        if (const auto* number = value.as<double>(); number && decimal) {
            require(std::abs(*number) < 0x1p63, "integers past 64 bits are not supported");
            integer = static_cast<int64_t>(*number);
        }
        require(integer.has_value(), "the % format '%{}' needs an integer, not {}",
                conversion.letter, value.type_name());
        require(!conversion.has('#'), "the flag '#' of a % format is not supported");
        const bool negative = *integer < 0;
        const uint64_t size =
            negative ? 0 - static_cast<uint64_t>(*integer) : static_cast<uint64_t>(*integer);
        const std::string digits = conversion.letter == 'x'   ? fmt::format("{:x}", size)
                                   : conversion.letter == 'X' ? fmt::format("{:X}", size)
                                   : conversion.letter == 'o' ? fmt::format("{:o}", size)
                                                              : std::to_string(size);
        return fmt::format("{}{}", negative ? "-" : "",
                           pad(digits, conversion.precision.value_or(0), "0", Side::kLeft));
    }

    static std::string float_digits(const Conversion& conversion, const Value& value) {
        const auto number = value.as_number();
        require(number.has_value(), "the % format '%{}' needs a number, not {}", conversion.letter,
                value.type_name());
        require(!conversion.has('#'), "the flag '#' of a % format is not supported");
        const std::string format =
            fmt::format("{{:.{}{}}}", conversion.precision.value_or(6), conversion.letter);
        return fmt::format(fmt::runtime(format), static_cast<double>(*number));
    }

    std::string_view format_;
    const Value& values_;
    const Sequence* tuple_;
    size_t position_ = 0;
    size_t used_ = 0;
    std::string out_;
};

}  // namespace

std::string format_percent(std::string_view format, const Value& values) {
    return PercentFormatter(format, values).run();
}

}  // namespace dak::jinja
