#pragma once

#include <string_view>

#include "model/chat/jinja_ast.h"

namespace dak::jinja {

/// Parses a template. Throws Error, beginning with `where` and the line, for wrong syntax and for
/// tags, filters and tests that are not supported, naming them.
Body parse_template(std::string_view source, std::string_view where);

}  // namespace dak::jinja
