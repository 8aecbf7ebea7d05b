#include "model/chat/jinja_eval.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/error.h"
#include "model/chat/jinja_builtins.h"
#include "model/chat/jinja_operators.h"

namespace dak::jinja {

namespace {

/// The variables of one block, and the block around it.
struct Scope {
    std::shared_ptr<const Scope> parent;
    std::map<std::string, Value, std::less<>> variables = {};

    const Value* find(std::string_view name) const {
        for (const Scope* scope = this; scope; scope = scope->parent.get()) {
            const auto it = scope->variables.find(name);
            if (it != scope->variables.end()) return &it->second;
        }
        return nullptr;
    }
};

/// raise_exception was called.
struct Raised {
    std::string message;
};

enum class Flow { kNext, kBreak, kContinue };

}  // namespace

/// A macro sees the variables around its definition. The scope owns the macro, not the reverse.
struct Macro {
    const MacroDefinition* definition;
    std::weak_ptr<const Scope> scope;
};

namespace {

/// Frames of eval() and run() on the stack at once. One takes under 1 KiB (8 KiB with sanitizers).
constexpr int kMaxStack = 500;
/// The limit of jinja2's sandbox.
constexpr int64_t kMaxRange = 100000;

Value make_range(Arguments& args) {
    const int64_t first = args.integer("start");
    int64_t start = 0;
    int64_t stop = first;
    if (args.has_positional()) {
        start = first;
        stop = args.integer("stop");
    }
    const int64_t step = args.integer("step", 1);
    require(step != 0, "the step of range() cannot be 0");
    std::vector<Value> items;
    for (int64_t value = start; step > 0 ? value < stop : value > stop;) {
        require(items.size() < kMaxRange, "range() of more than {} items", kMaxRange);
        items.emplace_back(value);
        if (__builtin_add_overflow(value, step, &value)) break;
    }
    std::string label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                  : fmt::format("range({}, {}, {})", start, stop, step);
    return Value::sequence({Sequence::Kind::kRange, std::move(items), std::move(label)});
}

/// dict(): from a mapping or pairs, then from keywords.
Dict make_dict(Arguments& args) {
    Dict dict;
    if (args.has_positional()) {
        const Value source = args.get("mapping");
        if (const auto* other = source.as<Dict>()) {
            for (const auto& [key, value] : other->entries) dict.set(key, value);
        } else {
            for (const Value& pair : iterate(source)) {
                const std::vector<Value> parts = iterate(pair);
                require(parts.size() == 2, "dict() takes pairs, found {} values", parts.size());
                dict.set(parts[0], parts[1]);
            }
        }
    }
    for (auto& [name, value] : args.keyword_rest()) dict.set(Value(name), std::move(value));
    return dict;
}

Value strftime_now(const std::string& format) {
    // 128 characters hold any date format; glibc widths (%9999d) could ask for any length of text.
    require(format.size() <= 128 && format.find('\0') == format.npos,
            "strftime_now takes a format of at most 128 characters");
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::string expanded;
    for (size_t i = 0; i < format.size(); ++i) {
        const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
        if (next == 'f') {
            const auto part = now - std::chrono::system_clock::from_time_t(seconds);
            expanded += fmt::format(
                "{:06}", std::chrono::duration_cast<std::chrono::microseconds>(part).count());
        } else if (next != 'z' && next != 'Z') {  // empty for a time without a zone
            expanded += format[i];
            if (next != '\0') expanded += next;
        }
        if (next != '\0') ++i;
    }
    std::tm local{};
    localtime_r(&seconds, &local);
    char buffer[4096];
    return Value(
        std::string(buffer, std::strftime(buffer, sizeof(buffer), expanded.c_str(), &local)));
}

class Renderer {
  public:
    explicit Renderer(int64_t max_work) : budget_(max_work) {}

    int line() const { return line_; }

    std::string render(const Body& body, const Dict& variables) {
        const auto root = std::make_shared<Scope>();
        for (const auto& [name, value] : variables.entries) {
            root->variables.insert_or_assign(*name.as<std::string>(), value);
        }
        scope_ = root;
        run(body);
        return std::move(out_);
    }

  private:
    /// Counts recursion while it lives.
    class Frame {
      public:
        explicit Frame(int& depth) : depth_(depth) {
            require(depth_ < kMaxStack, "macros call each other too deeply");
            ++depth_;
        }
        ~Frame() { --depth_; }
        Frame(const Frame&) = delete;
        Frame& operator=(const Frame&) = delete;

      private:
        int& depth_;
    };

    /// A scope inside `parent` while it lives.
    class InnerScope {
      public:
        InnerScope(Renderer& renderer, std::shared_ptr<const Scope> parent)
            : renderer_(renderer), outer_(renderer.scope_) {
            renderer.scope_ = std::make_shared<Scope>(Scope{std::move(parent)});
        }
        ~InnerScope() { renderer_.scope_ = outer_; }
        InnerScope(const InnerScope&) = delete;
        InnerScope& operator=(const InnerScope&) = delete;

      private:
        Renderer& renderer_;
        std::shared_ptr<Scope> outer_;
    };

    // --- statements ---

    Flow run(const Body& body) {
        const Frame frame(stack_);
        for (const Stmt& stmt : body) {
            budget_.charge(1);
            line_ = stmt.line;
            const Flow flow = std::visit([&](const auto& node) { return run(node); }, stmt.node);
            if (flow != Flow::kNext) return flow;
        }
        return Flow::kNext;
    }

    void print(std::string_view text) {
        budget_.charge(static_cast<int64_t>(text.size() / 32));
        check_string_size(out_.size() + text.size());
        out_ += text;
    }

    /// What running `body` prints.
    std::string capture(const Body& body) {
        std::string outer = std::exchange(out_, {});
        run(body);
        return std::exchange(out_, std::move(outer));
    }

    Flow run(const Text& text) {
        print(text.text);
        return Flow::kNext;
    }

    Flow run(const Output& output) {
        print(text_of(budget_, eval(*output.value)));
        return Flow::kNext;
    }

    Flow run(const If& branch) {
        for (const auto& [condition, body] : branch.branches) {
            if (eval(*condition).truth()) return run(body);
        }
        return run(branch.otherwise);
    }

    Flow run(const For& node) {
        auto loop = std::make_shared<Loop>();
        loop->items = loop_items(node);
        loop->count = *length(loop->items);
        const Value loop_value{std::shared_ptr<const Loop>(loop)};
        const auto& items = loop->items.as<Sequence>()->items;
        for (; loop->index < loop->count; ++loop->index) {
            budget_.charge(1);
            const InnerScope inner(*this, scope_);
            assign(node.target, items[static_cast<size_t>(loop->index)]);
            scope_->variables.insert_or_assign("loop", loop_value);
            if (run(node.body) == Flow::kBreak) break;
        }
        if (loop->count > 0) return Flow::kNext;
        const InnerScope inner(*this, scope_);
        return run(node.otherwise);
    }

    /// The items that pass the loop's condition, as a list.
    Value loop_items(const For& node) {
        const Value iterable = eval(*node.iterable);
        budget_.charge(iterable.size_cost());
        std::vector<Value> items = iterate(iterable);
        if (!node.condition) return Value::list(std::move(items));
        std::vector<Value> chosen;
        for (Value& item : items) {
            const InnerScope inner(*this, scope_);
            assign(node.target, item);
            if (eval(*node.condition).truth()) chosen.push_back(std::move(item));
        }
        return Value::list(std::move(chosen));
    }

    Flow run(const Set& set) {
        assign(set.target, eval(*set.value));
        return Flow::kNext;
    }

    Flow run(const Capture& node) {
        Value value;
        {
            const InnerScope inner(*this, scope_);
            std::string body = capture(node.body);
            scope_->variables.insert_or_assign(kCapturedBody, Value(std::move(body)));
            value = eval(*node.value);
        }
        if (node.target) {
            assign(*node.target, value);
        } else {
            print(text_of(budget_, value));
        }
        return Flow::kNext;
    }

    Flow run(const Scoped& node) {
        std::vector<Value> values;
        for (const auto& [target, value] : node.assignments) values.push_back(eval(*value));
        const InnerScope inner(*this, scope_);
        for (size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].first, values[i]);
        return run(node.body);
    }

    Flow run(const MacroDefinition& definition) {
        auto macro = std::make_shared<const Macro>(Macro{&definition, scope_});
        scope_->variables.insert_or_assign(definition.name, Value(std::move(macro)));
        return Flow::kNext;
    }

    Flow run(const LoopExit& exit) {
        return exit == LoopExit::kBreak ? Flow::kBreak : Flow::kContinue;
    }

    void assign(const Target& target, const Value& value) {
        if (!target.items.empty()) {
            const std::vector<Value> values = iterate(value);
            require(values.size() == target.items.size(), "cannot unpack {} values into {} names",
                    values.size(), target.items.size());
            for (size_t i = 0; i < values.size(); ++i) assign(target.items[i], values[i]);
        } else if (target.attribute.empty()) {
            scope_->variables.insert_or_assign(target.name, value);
        } else {
            const Value* found = scope_->find(target.name);
            Namespace* space = found ? found->as_namespace() : nullptr;
            require(space != nullptr, "'{0}.{1}' cannot be set, because '{0}' is no namespace",
                    target.name, target.attribute);
            set_attribute(*space, target.attribute, value);
        }
    }

    void set_attribute(Namespace& space, const std::string& name, const Value& value) {
        require(!name.starts_with('_'), "the attribute '{}' of a namespace begins with '_'", name);
        space.attributes.insert_or_assign(name, value);
    }

    // --- expressions ---

    Value eval(const Expr& expr) {
        const Frame frame(stack_);
        budget_.charge(1);
        line_ = expr.line;
        return std::visit([&](const auto& node) { return eval(node); }, expr.node);
    }

    Value eval_or_none(const ExprPtr& expr) { return expr ? eval(*expr) : Value(); }

    Value eval(const Literal& literal) { return literal.value; }

    Value eval(const Name& node) {
        static constexpr std::pair<std::string_view, Function> kFunctions[] = {
            {"range", Function::kRange},
            {"dict", Function::kDict},
            {"namespace", Function::kNamespace},
            {"raise_exception", Function::kRaiseException},
            {"strftime_now", Function::kStrftimeNow}};
        if (const Value* value = scope_->find(node.name)) return *value;
        for (const auto& [name, function] : kFunctions) {
            if (node.name == name) return function;
        }
        for (const std::string_view name : {"cycler", "joiner", "lipsum"}) {
            require(node.name != name, "the function '{}' is not supported", name);
        }
        return Value::undefined("'" + node.name + "' is undefined");
    }

    std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs) {
        std::vector<Value> values;
        values.reserve(exprs.size());
        for (const ExprPtr& expr : exprs) values.push_back(eval(*expr));
        return values;
    }

    Value eval(const Items& node) {
        std::vector<Value> items = eval_all(node.items);
        return node.is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
    }

    Value eval(const DictDisplay& node) {
        Dict dict;
        for (const auto& [key, value] : node.entries) {
            const Value evaluated = eval(*key);
            budget_.charge(evaluated.weight());
            dict.set(evaluated, eval(*value));
        }
        return Value::dict(std::move(dict));
    }

    Value eval(const Unary& node) { return apply(node.op, eval(*node.operand)); }

    Value eval(const Binary& node) {
        Value left = eval(*node.left);
        if (node.op == BinaryOp::kAnd) return left.truth() ? eval(*node.right) : left;
        if (node.op == BinaryOp::kOr) return left.truth() ? left : eval(*node.right);
        const Value right = eval(*node.right);
        // Only % looks into its operands; + and * copy them.
        const bool deep = node.op == BinaryOp::kModulo;
        budget_.charge(deep ? left.weight() + right.weight()
                            : left.size_cost() + right.size_cost());
        Value result = apply(node.op, left, right);
        budget_.charge(result.size_cost());
        return result;
    }

    Value eval(const Compare& node) {
        Value left = eval(*node.first);
        for (const auto& [op, operand] : node.rest) {
            Value right = eval(*operand);
            const bool lookup =
                (op == CompareOp::kIn || op == CompareOp::kNotIn) && right.is<Dict>();
            budget_.charge(left.weight() + (lookup ? 1 : right.weight()));
            if (!compare(op, left, right)) return false;
            left = std::move(right);
        }
        return true;
    }

    Value eval(const Concat& node) {
        std::string text;
        for (const ExprPtr& part : node.parts) {
            text += text_of(budget_, eval(*part));
            check_string_size(text.size());
        }
        budget_.charge(static_cast<int64_t>(text.size() / 32));
        return Value(std::move(text));
    }

    Value eval(const Conditional& node) {
        if (eval(*node.condition).truth()) return eval(*node.then);
        if (node.otherwise) return eval(*node.otherwise);
        return Value::undefined("the inline 'if' was false and has no 'else'");
    }

    Value eval(const Attribute& node) { return get_attribute(eval(*node.object), node.name); }

    Value eval(const Subscript& node) {
        const Value object = eval(*node.object);
        const Value index = eval(*node.index);
        budget_.charge(index.weight() + (object.is<std::string>() ? object.size_cost() : 0));
        return get_item(object, index);
    }

    Value eval(const Slice& node) {
        const Value object = eval(*node.object);
        budget_.charge(object.size_cost());
        return get_slice(object, eval_or_none(node.start), eval_or_none(node.stop),
                         eval_or_none(node.step));
    }

    Arguments eval(const CallArguments& node) {
        std::vector<Value> positional = eval_all(node.positional);
        Arguments::Keyword keyword;
        for (const auto& [name, value] : node.keyword) keyword.emplace_back(name, eval(*value));
        return {std::move(positional), std::move(keyword)};
    }

    Value eval(const Filter& node) {
        const Value subject = eval(*node.subject);
        Arguments arguments = eval(node.arguments);
        return call_filter(*node.filter, budget_, subject, std::move(arguments));
    }

    Value eval(const Test& node) {
        const Value subject = eval(*node.subject);
        return call_test(*node.test, budget_, subject, eval(node.arguments));
    }

    Value eval(const Call& node) {
        const Value callee = eval(*node.callee);
        Arguments arguments = eval(node.arguments);
        if (const auto* method = callee.as<Method>()) {
            return call_method(*method, budget_, std::move(arguments));
        }
        if (const auto* macro = callee.as<Macro>()) return call_macro(*macro, arguments);
        if (callee.is<Undefined>()) raise_undefined(callee);
        const auto* function = callee.as<Function>();
        require(function != nullptr, "a value of type {} cannot be called", callee.type_name());
        Value result = call_function(*function, arguments);
        arguments.finish();
        budget_.charge(result.size_cost());
        return result;
    }

    Value call_function(Function function, Arguments& arguments) {
        switch (function) {
            case Function::kRange:
                return make_range(arguments);
            case Function::kDict:
                return Value::dict(make_dict(arguments));
            case Function::kNamespace:
                return make_namespace(arguments);
            case Function::kRaiseException:
                throw Raised{text_of(budget_, arguments.get("message"))};
            case Function::kStrftimeNow:
                return strftime_now(arguments.text("format"));
        }
        fail("internal error: unknown function");
    }

    Value make_namespace(Arguments& arguments) {
        namespaces_.push_back(std::make_unique<Namespace>());
        for (const auto& [name, value] : make_dict(arguments).entries) {
            const auto* text = name.as<std::string>();
            require(text != nullptr, "namespace() takes names as keys, not {}", name.type_name());
            set_attribute(*namespaces_.back(), *text, value);
        }
        return namespaces_.back().get();
    }

    Value call_macro(const Macro& macro, Arguments& arguments) {
        const MacroDefinition& definition = *macro.definition;
        auto around = macro.scope.lock();
        require(around != nullptr, "the macro '{}' is called outside of the block that defines it",
                definition.name);
        const InnerScope inner(*this, std::move(around));
        for (const auto& [name, fallback] : definition.parameters) {
            const Value* given = arguments.take(name);
            Value value = given ? *given : Value();
            if (!given) {
                value =
                    fallback
                        ? eval(*fallback)
                        : Value::undefined(fmt::format("parameter '{}' was not provided", name));
            }
            scope_->variables.insert_or_assign(name, std::move(value));
        }
        arguments.finish();
        return Value(capture(definition.body));
    }

    Budget budget_;
    std::vector<std::unique_ptr<Namespace>> namespaces_;
    std::shared_ptr<Scope> scope_;
    std::string out_;
    int stack_ = 0;
    int line_ = 1;
};

}  // namespace

std::string render_template(const Body& body, const Dict& variables, std::string_view where,
                            int64_t max_work) {
    Renderer renderer(max_work);
    try {
        return renderer.render(body, variables);
    } catch (const Raised& raised) {
        std::string message = raised.message;
        std::replace(message.begin(), message.end(), '\n', ' ');
        fail("{}: the template refuses the conversation: {}", where, message);
    } catch (const Error& error) {
        fail("{}, line {}: {}", where, renderer.line(), error.what());
    }
}

}  // namespace dak::jinja
