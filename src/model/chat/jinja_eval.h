#pragma once

#include <string>
#include <string_view>

#include "model/chat/jinja_ast.h"

namespace dak::jinja {

/// The work one rendering may do (see Budget): hundreds of times what a conversation that fills the
/// longest contexts takes, and at most some seconds and 1 GiB for a hostile template.
constexpr int64_t kMaxWork = int64_t{32} << 20;

/// The output of a template for the given variables. Throws Error beginning with `where`: with the
/// line for what Python or jinja2 would not do, or is not supported here; with the template's own
/// message where it calls raise_exception.
std::string render_template(const Body& body, const Dict& variables, std::string_view where,
                            int64_t max_work = kMaxWork);

}  // namespace dak::jinja
