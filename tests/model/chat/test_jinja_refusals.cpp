// What cannot be rendered ends in one line that names the construct and its line, and what could
// crash or hang ends in an error.

#include <gmock/gmock.h>

#include "rendering.h"

namespace dak {
namespace {

using testing::HasSubstr;

TEST(JinjaRefusals, NameTheConstructAndTheLine) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"\n{% include 'x' %}", "t, line 2: the tag 'include' is not supported"},
        {"{{ 1\n| xmlattr }}", "t, line 2: the filter 'xmlattr' is not supported"},
        {"{{ 1 is lucky }}", "t, line 1: the test 'lucky' is not supported"},
        {"{% for x in y recursive %}{% endfor %}", "t, line 1: recursive loops are not supported"},
        {"{{ f(*a) }}", "t, line 1: unpacking arguments with '*' is not supported"},
        {"{{ [1] | map('lucky') }}", "t, line 1: the filter 'lucky' is not supported"},
        {"a\n\n{{ 'x'.encode() }}", "t, line 3: 'str.encode' is not supported"},
        {"{{ cycler('a') }}", "t, line 1: the function 'cycler' is not supported"},
        {"{{ x.__class__ }}", "t, line 1: access to the attribute '__class__' is not allowed"},
        {"{{ [].append(1) }}",
         "t, line 1: 'list.append' changes a value in place, which templates must not do"},
        {"{{ 9223372036854775807 + 1 }}", "t, line 1: integers past 64 bits are not supported"},
        {"{{ [1] | map('abs') }}",
         "t, line 1: cannot print an iterator; pass it through the filter 'list' or 'join'"},
        {"{% macro m() %}{{ caller() }}{% endmacro %}",
         "t, line 1: 'caller' in a macro is not supported"},
        {"{{ loop.ключ }}", "t, line 1: unexpected character 'к'"},
    };
    for (const auto& [source, message] : cases) EXPECT_EQ(error_of(source), message) << source;
}

TEST(JinjaRefusals, WrongSyntax) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"{{ 1 +", "t, line 1: '}}' is missing"},
        {"\n{{ 1 + }}", "t, line 2: expected an expression, found the end of the tag"},
        {"{% if 1 %}\n", "t, line 1: the tag before this has no 'endif'"},
        {"{% endif %}", "t, line 1: unexpected tag 'endif'"},
        {"{{ (1] }}", "t, line 1: unexpected ']'"},
        {"{{ 'a }}", "t, line 1: a string is never closed"},
        {"{# a", "t, line 1: a comment '{#' is never closed"},
        {"\n{% raw %}\n", "t, line 2: a raw block is never closed"},
        {"{% break %}", "t, line 1: 'break' outside of a loop's own body"},
        {"{% set none = 1 %}", "t, line 1: expected a name, found 'none'"},
        {"{{ 1 ! 2 }}", "t, line 1: unexpected character '!'"},
        {"{{ 99999999999999999999 }}", "t, line 1: integers past 64 bits are not supported"},
        {"{{ '\\ud800' }}", "t, line 1: the string escape '\\ud800' is no character"},
    };
    for (const auto& [source, message] : cases) EXPECT_EQ(error_of(source), message) << source;
}

TEST(JinjaRefusals, WhatPythonRaises) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"{{ x.y }}", "t, line 1: 'x' is undefined"},
        {"{{ {}.a.b }}", "t, line 1: 'dict object' has no attribute 'a'"},
        {"{{ 'a' + missing }}", "t, line 1: 'missing' is undefined"},
        {"{{ 'a' + 1 }}", "t, line 1: operator + does not take str and int"},
        {"{{ 1 < 'a' }}", "t, line 1: cannot order values of types int and str"},
        {"{{ 1 % 0 }}", "t, line 1: division by zero"},
        {"{{ 5() }}", "t, line 1: a value of type int cannot be called"},
        {"{% for x in 5 %}{% endfor %}", "t, line 1: a value of type int cannot be iterated over"},
        {"{% for a, b in [[1]] %}{% endfor %}", "t, line 1: cannot unpack 1 values into 2 names"},
        {"{{ missing | tojson }}", "t, line 1: a value of type Undefined has no JSON form"},
        {"{{ 'a' | upper(1) }}", "t, line 1: there are too many arguments"},
        {"{{ 'a' | indent(wide=1) }}", "t, line 1: unexpected argument 'wide'"},
        {"{% set d = {} %}{% set d.x = 1 %}",
         "t, line 1: 'd.x' cannot be set, because 'd' is no namespace"},
        {"{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}{% endmacro %}"
         "{% set ns.m = m %}{% endfor %}{{ ns.m() }}",
         "t, line 1: the macro 'm' is called outside of the block that defines it"},
    };
    for (const auto& [source, message] : cases) EXPECT_EQ(error_of(source), message) << source;
}

std::string repeated(std::string_view text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
}

TEST(JinjaRefusals, NestingIsBounded) {
    for (const std::string_view open : {"(", "[", "{1:", "-", "not ", "f(", "a[", "1 if "}) {
        EXPECT_THAT(error_of("{{ " + repeated(open, 20000)), HasSubstr("line 1: ")) << open;
    }
    EXPECT_THAT(error_of(repeated("{% if 1 %}", 20000)), HasSubstr("nested deeper than"));
    EXPECT_THAT(error_of("{% set " + repeated("(", 20000)), HasSubstr("line 1: "));
    for (const std::string_view part : {"+1", ".a", "|abs", "()", "[0]", "*1"}) {
        EXPECT_THAT(error_of("{{ 1" + repeated(part, 20000) + " }}"), HasSubstr("parts in a row"))
            << part;
    }
    EXPECT_EQ(render("{{ 1" + repeated("~1", 10000) + " }}").size(), 10001);
}

TEST(JinjaRefusals, RecursionIsBounded) {
    EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
                HasSubstr("too deeply"));
    EXPECT_THAT(error_of("{% macro m(a=m()) %}{% endmacro %}{{ m() }}"), HasSubstr("too deeply"));
    // Values that contain each other ever more deeply, and that double with every step.
    const std::string ns = "{% set ns = namespace(x=[1]) %}{% for i in range(90000) %}";
    EXPECT_THAT(error_of(ns + "{% set ns.x = [ns.x] %}{% endfor %}"), HasSubstr("nest deeper"));
    EXPECT_THAT(error_of(ns + "{% for y in ns.x %}{% set ns.x = [loop] %}{% endfor %}{% endfor %}"),
                HasSubstr("nest deeper"));
    EXPECT_THAT(error_of("{% set ns = namespace(x=[1]) %}{% for i in range(90) %}"
                         "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
                HasSubstr("too much work"));
    // A namespace may contain itself.
    EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x[0] == ns }}"), "True");
}

TEST(JinjaRefusals, WorkAndSizeAreBounded) {
    EXPECT_THAT(error_of("{{ 'a' * 99999999999 }}"), HasSubstr("grew past 16 MiB"));
    EXPECT_THAT(error_of("{{ [0] * 99999999999 }}"), HasSubstr("grew past 16 MiB"));
    EXPECT_THAT(error_of("{{ '%9999999999d' % 1 }}"), HasSubstr("wider than 10000"));
    EXPECT_THAT(error_of("{{ 'a'.ljust(99999999999) }}"), HasSubstr("grew past 16 MiB"));
    EXPECT_THAT(error_of("{{ range(100001) }}"), HasSubstr("more than 100000 items"));
    const std::string twice = "{% for i in range(99999) %}{% for j in range(99999) %}";
    EXPECT_THAT(error_of(twice + "{% endfor %}{% endfor %}"), HasSubstr("too much work"));
    EXPECT_THAT(error_of("{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
                         "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
                HasSubstr("grew past 16 MiB"));
    EXPECT_THAT(error_of("{% for i in range(99999) %}{{ 'abcdefgh' * 1000 }}{% endfor %}"),
                HasSubstr("grew past 16 MiB"));
    EXPECT_THAT(error_of(std::string((1 << 20) + 1, 'a')), HasSubstr("longer than 1 MiB"));
}

TEST(JinjaRefusals, LongConversationsFit) {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    for (int i = 0; i < 2000; ++i) {
        messages.push_back(
            {{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(2000, 'x')}});
    }
    const std::string text = render(
        "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + 1 %}"
        "{% endfor %}{% for m in messages %}{% if loop.index0 == messages | length - 1 %}last"
        "{% endif %}{{ '<' + m.role + '>' + (m.content | trim).split('y')[-1] }}{% endfor %}",
        {{"messages", messages}});
    EXPECT_EQ(text.size(), 2000 * 2000 + 1000 * (6 + 11) + 4);
}

}  // namespace
}  // namespace dak
