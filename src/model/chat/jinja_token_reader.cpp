#include "model/chat/jinja_token_reader.h"

#include "model/chat/jinja_text.h"

namespace dak::jinja {

void TokenReader::unexpected(std::string_view expected) const {
    const Token& token = peek();
    const bool quoted = token.kind == Kind::kName || token.kind == Kind::kOperator ||
                        token.kind == Kind::kInteger || token.kind == Kind::kFloat;
    const std::string found = quoted                        ? "'" + token.text + "'"
                              : token.kind == Kind::kString ? quote(token.text)
                              : token.kind == Kind::kEnd    ? "the end of the template"
                                                            : "the end of the tag";
    error(token.line, "expected {}, found {}", expected, found);
}

}  // namespace dak::jinja
