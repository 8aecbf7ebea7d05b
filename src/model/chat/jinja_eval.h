#pragma once

#include <string>
#include <string_view>

#include "model/chat/jinja_ast.h"

namespace dak::jinja {

/// The work one rendering may do (see Budget). Ordinary templates take some 100 units a message, so
/// this is far beyond the longest conversation, and a second or two and 512 MiB for a hostile one.
constexpr int64_t kMaxWork = int64_t{16} << 20;

/// The output of a template for the given variables. Throws Error beginning with `where`: with the
/// line for what Python or jinja2 would not do, or is not supported here; with the template's own
/// message where it calls raise_exception.
std::string render_template(const Body& body, const Dict& variables, std::string_view where,
                            int64_t max_work = kMaxWork);

}  // namespace dak::jinja
