#include "rendering.h"

namespace dak {
namespace {

struct Case {
    std::string_view source;
    std::string_view text;
};

const nlohmann::ordered_json kVariables = {
    {"name", "Ada"},
    {"list", {3, 1, 2}},
    {"dict", {{"b", 1}, {"a", "x"}}},
    {"people", {{{"n", "Bo"}, {"age", 30}}, {{"n", "Al"}}}},
};

void expect_all(std::initializer_list<Case> cases) {
    for (const auto& [source, text] : cases) EXPECT_EQ(render(source, kVariables), text) << source;
}

TEST(Jinja, Operators) {
    expect_all(
        {{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 4 / 2 }}", "3 -4 2 3.5 2.0"},
         {"{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 2 ** -1 }}", "4 64 0.5"},
         {"{{ 2 ~ 3 * 4 }} {{ 1 + 2 * 3 }}", "212 7"},
         {"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 == true }}", "True False True"},
         {"{{ not 1 in [2] }} {{ 1 not in [2] and true }}", "True True"},
         {"{{ name and 'x' or 'y' }}{{ '' or none }}", "xNone"},
         {"{{ 'a' if 0 else 'b' if 0 else 'c' }}[{{ 'a' if 0 }}]", "c[]"},
         {"{{ 'ab' * 2 }}{{ [1] + [2] }}{{ (1,) + () }}", "abab[1, 2](1,)"},
         {"{{ 'a' 'b' ~ \"c\\n\" }}", "abc\n"}});
}

TEST(Jinja, ValuesPrintAsInPython) {
    expect_all(
        {{"{{ true }} {{ none }} {{ missing }}|", "True None |"},
         {"{{ 1.0 }} {{ 1e16 }} {{ 1.5e-7 }} {{ 0.1 + 0.2 }}",
          "1.0 1e+16 1.5e-07 0.30000000000000004"},
         {"{{ ['a', \"it's\", 1.0, none, (1,), {'k': true}] }}",
          "['a', \"it's\", 1.0, None, (1,), {'k': True}]"},
         {"{{ dict.items() }} {{ range(3) }}", "dict_items([('b', 1), ('a', 'x')]) range(0, 3)"},
         {"{{ ['\\u00ad\\u00e9\\n'] }}", "['\\xad\u00e9\\n']"}});
}

TEST(Jinja, Access) {
    expect_all({{"{{ dict.a }}{{ dict['b'] }}{{ list[0] }}{{ list[-1] }}{{ list.1 }}", "x1321"},
                {"{{ dict.q is defined }}{{ list[9] is defined }}", "FalseFalse"},
                {"{{ name[::-1] }} {{ list[1:] }} {{ list[:-1] }} {{ (1, 2, 3)[::2] }}",
                 "adA [1, 2] [3, 1] (1, 3)"},
                {"{{ dict.get('z', 5) }}{{ dict.keys() | list }}", "5['b', 'a']"},
                {"{{ dict.items is callable }}", "True"}});
}

TEST(Jinja, FiltersTestsAndMethods) {
    expect_all({{"{{ ' x ' | trim | upper ~ '!' }}", "X!"},
                {"{{ dict | tojson }} {{ [1, 'é'] | tojson(indent=1) }}",
                 "{\"b\": 1, \"a\": \"x\"} [\n 1,\n \"é\"\n]"},
                {"{{ people | map(attribute='n') | join(', ') }}", "Bo, Al"},
                {"{{ people | selectattr('age', 'defined') | list | length }}", "1"},
                {"{{ list | sort | join }}{{ list | max }}{{ dict | dictsort }}",
                 "1233[('a', 'x'), ('b', 1)]"},
                {"{{ 5 is odd }}{{ 'a' is string and 1 is not none }}{{ 6 is divisibleby 3 }}",
                 "TrueTrueTrue"},
                {"{{ 'a,b'.split(',') }}{{ '%s=%03d' % ('k', 7) }}{{ '-'.join(['a', 'b']) }}",
                 "['a', 'b']k=007a-b"},
                {"{{ missing | default('d') }}{{ '' | d('e', true) }}", "de"},
                {"{{ 'straße'.upper() }} {{ 'hello world' | title }}", "STRASSE Hello World"},
                {"{% set g = list | map('string') %}{{ 'yes' if g }}{{ g | join }}{{ g | join }}",
                 "yes312"}});
}

TEST(Jinja, WhiteSpace) {
    expect_all({{"{% if 1 %}\na\n{% endif %}\nb", "a\nb"},
                {"x\n  {% if 1 %}a{% endif %}", "x\na"},
                {"x\n  {%+ if 1 +%}\na{% endif %}", "x\n  \na"},
                {"x \n {%- if 1 -%} \n a {{- 'b' -}} \n c{% endif %}", "xabc"},
                {"{# c #}\na {# c -#} \nb", "a b"},
                {"{% raw %}{{ x }}{% endraw %}\ny\n", "{{ x }}y"},
                {"a\r\nb\r", "a\nb"}});
}

TEST(Jinja, LoopsAndScopes) {
    expect_all(
        {{"{% for i in list %}{{ loop.index }}{{ loop.last }};{% endfor %}",
          "1False;2False;3True;"},
         {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
         {"{% for k, v in dict.items() if v != 1 %}{{ k }}{{ v }}{{ loop.length }}{% endfor %}",
          "ax1"},
         {"{% for i in list %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% break %}"
          "{% endfor %}",
          "3"},
         {"{% for i in list %}{{ loop.previtem }}>{{ loop.nextitem }} {% endfor %}", ">1 3>2 1> "},
         {"{% set x = 0 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}", "0"},
         {"{% set ns = namespace(x=0) %}{% for i in list %}{% set ns.x = i %}{% endfor %}"
          "{{ ns.x }}",
          "2"},
         {"{% set x | upper %}a{{ name }}{% endset %}{{ x }}", "AADA"},
         {"{% with y = 1 %}{{ y }}{% endwith %}{{ y is defined }}", "1False"},
         {"{% generation %}{{ name }}{% endgeneration %}", "Ada"},
         {"{% filter replace('a', 'o') %}banana{% endfilter %}", "bonono"}});
}

TEST(Jinja, Macros) {
    expect_all(
        {{"{% macro m(a, b=a) %}{{ a }}{{ b }};{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}",
          "11;32;"},
         {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
          "3210"},
         {"{% set q = 1 %}{% macro m() %}{{ q }}{% endmacro %}{% set q = 2 %}{{ m() }}", "2"}});
}

}  // namespace
}  // namespace dak
