"""Small templates that together visit every operator, filter, test, method and statement on values
of every type, and random expressions for the precedence of operators."""

import itertools
import random

VARIABLES = {
    "name": "Ada Lovelace", "empty": "", "text": "  Hello, wörld!\tßtraße\n\nİstanbul ΣΑΣ \u00a0",
    "emoji": "👩‍🔬 e\u0301 🇨🇭", "csv": "a,b,,c", "num": "42", "zero": 0, "one": 1, "big": 2**53 + 1,
    "neg": -7, "pi": 3.14159, "half": 0.5, "huge": 1e22, "tiny": 1.5e-7, "yes": True, "no": False,
    "nothing": None, "items_list": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3]],
    "mixed": [1, "x", None, True, 2.5], "hollow": [], "point": {"x": 1, "y": "two", "z": None},
    "no_keys": {}, "odd_keys": {"items": 1, "a b": 2, "ключ": "знач", "_p": 3},
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25, "tags": []},
               {"name": "Cy", "age": 30}],
    "quotes": "it's \"quoted\" \\ <b>&\x00\x7f\u2028",
}

ATOMS = [
    "name", "empty", "zero", "one", "neg", "pi", "0.0", "true", "none", "missing", "items_list",
    "['a', 1]", "(1, 2)", "point", "range(3)", "point.items()|list", "words|map('upper')", "big",
    "9223372036854775807", "emoji", "namespace(a=1)",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in",
             "not in", "and", "or"]

FILTERS = [
    "abs", "capitalize", "count", "default('D')", "d('D', true)", "default(boolean=true)",
    "dictsort", "dictsort(true)", "dictsort(by='value', reverse=true)", "escape", "e|upper",
    "first", "float", "float(default=1.5)", "format('q')", "indent", "indent(2, true)",
    "indent('> ', blank=true)", "int", "int(7)", "int(base=16)", "int(default=none)",
    "items|list", "join", "join(', ')", "join(attribute='name')", "last", "length", "list",
    "lower", "map('upper')|list", "map(attribute='name')|list", "map('default', 'x')|join",
    "map(attribute='age', default=0)|list", "max", "min", "max(attribute='age')", "reject|list",
    "reject('none')|list", "rejectattr('tags')|list", "replace('a', 'b')", "replace('', '-', 3)",
    "replace('l', 'L', count=1)", "reverse|list", "reverse", "round", "round(1)",
    "round(2, 'floor')", "round(method='ceil')", "safe", "safe|length", "select|list",
    "select('string')|list", "select('gt', 1)|list", "selectattr('age', 'equalto', 30)|list",
    "selectattr('tags')|map(attribute='name')|join", "sort", "sort(reverse=true)",
    "sort(case_sensitive=true)", "sort(attribute='age,name')", "string", "string|length", "sum",
    "sum(attribute='age')", "sum(start=10)", "title", "tojson", "tojson(indent=2)",
    "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "tojson(indent='\\t', sort_keys=true)",
    "tojson(indent=0)", "trim", "trim('a d')", "unique|list", "unique(true)|list",
    "unique(attribute='age')|map(attribute='name')|list", "upper",
]
FILTER_SUBJECTS = [*VARIABLES, "missing", "(1, 'a')", "range(4)", "point.values()",
                   "words|map('lower')", "'0x1F'", "' -12 '", "'1_000'", "'3.99e2'", "'inf'", "'abc'",
                   "'%s-%s'", "2.5", "-2.675", "1e400", "[[2, 'b'], [1, 'c']]", "[1, 1.0, true]"]

TESTS = [
    "boolean", "callable", "defined", "divisibleby(3)", "divisibleby 2", "eq 1", "equalto('a')",
    "escaped", "even", "false", "float", "ge(1)", "greaterthan 0", "gt(0)", "in [1, 'a', none]",
    "in('abc')", "integer", "iterable", "le(1)", "lessthan 1", "lower", "lt(2)", "mapping", "ne(1)",
    "none", "number", "odd", "sameas(none)", "sameas true", "sequence", "string", "true",
    "undefined", "upper",
]

STRINGS = ["name", "empty", "text", "emoji", "csv", "'aXbXXc'", "'x'", "'They''re'", "'ǆ ﬁ 12ab'",
           "'\\r\\na\\vb\\x85c\\n'", "'+5'", "'ΑΣ ΑΣΑ.'", "'²³½一'", "quotes"]
STRING_METHODS = [
    "strip()", "strip('aA d!')", "lstrip()", "rstrip('\\n ')", "split()", "split(',')",
    "split('X', 1)", "split(none, 1)", "split(maxsplit=1)", "rsplit()", "rsplit(none, 1)",
    "rsplit('X', 1)", "rsplit(' ', 2)", "splitlines()", "splitlines(true)", "startswith('A')",
    "startswith(('x', '  H'))", "endswith(' ')", "endswith(())", "upper()", "lower()", "title()",
    "capitalize()", "swapcase()", "replace('a', 'ä')", "replace('', '.', 2)", "replace('X', '', 1)",
    "join(['1', '2', '3'])", "join(words)", "join('xyz')", "join([1])", "find('o')", "find('zz')",
    "rfind('a')", "index('a')", "rindex(' ')", "count('a')", "count('')", "partition(',')",
    "rpartition(' ')", "removeprefix('Ada ')", "removesuffix(' ')", "ljust(12, '*') ~ '|'",
    "rjust(9)", "center(10, '·')", "center(13)", "zfill(6)", "isalpha()", "isalnum()", "isdigit()",
    "isdecimal()", "isnumeric()", "isspace()", "isupper()", "islower()", "isascii()", "format(1)",
    "encode()", "unknown()", "strip", "upper() | lower", "split('')", "ljust('a')",
]
OTHER_CALLS = [
    "point.get('x')", "point.get('q')", "point.get('q', 5)", "point.keys()", "point.values()",
    "point.items()", "point.keys()|list", "point.items()|list", "point.copy()", "no_keys.items()",
    "odd_keys.items", "odd_keys['items']", "odd_keys.items()|list", "odd_keys['a b']", "odd_keys._p",
    "odd_keys['ключ']", "point.x", "point['y']", "point.missing", "point.missing.x",
    "point[none]", "point[['a']]", "point.update({'a': 1})", "items_list.append(4)",
    "items_list.index(2)", "items_list.index(9)", "items_list.count(1)", "items_list.copy()",
    "items_list.pop()", "items_list[0]", "items_list[-1]", "items_list[5]", "items_list['x']",
    "items_list[true]", "items_list[1.0]", "items_list.0", "nested.0.1", "nested[0][1]", "(1,)",
    "(1,2)[1]", "{}", "{'a': 1, 2: 'b', none: [], (1, 2): 3, true: 4}", "{1: 'a', true: 'b', 1.0: 'c'}",
    "{'a': 1}['a']", "{[1]: 2}", "[1, 2,]", "[]", "['it''s', \"q'q\", '\\n\\t\\\\']", "quotes", "[quotes]",
    "['\\u00ad', 'é', '\\u3000', '\\U0001f600']", "'a' 'b'", "\"a\\\"b\"", "'\\x41\\101\\u0042\\q'", "1_000",
    "0x1f", "0b101", "0o17", "1e3", "1.5E-3", "12.0", "1.", "-0.0", "1e16", "123456789012345678.0",
    "1e-5", "0.0001", "2**62", "2**64", "2**-1", "-2**2", "(-8)//3", "-8 % 3", "8 % -3", "-8.5 // 2",
    "7.5 % -2", "1/3", "1/0", "1//0", "1 % 0", "2**0.5", "(-8)**0.5", "0**-1", "10**18 * 10",
    "1 < 2 < 3", "1 < 3 < 2", "1 == 1.0 == true", "not 1 == 2", "not none", "- - 3", "+true", "-name",
    "range(5)", "range(2, 8, 3)|list", "range(5, 0, -2)|list", "range(0)", "range(3)[1]",
    "range(1, 2, 0)", "range(100001)", "range('a')", "dict(a=1, b=2)", "dict([('a', 1)])",
    "dict(point, x=5)", "dict(1)", "namespace()", "namespace(a=1).a", "namespace({'a': 2}).a",
    "namespace(a=1).b", "namespace(_a=1)", "raise_exception('stop here')", "strftime_now('%Y %j %%')",
    "strftime_now('[%z%Z]')", "'%s is %d years, %5.2f%% %r' % ('Al', 30, 99.5, 'q')", "'%s' % name",
    "'%(x)s/%(y)s' % point", "'%s %s' % (1,)", "'%s' % (1, 2)", "'none' % items_list", "'%05d|%-5d|%+d' % (42, 42, 42)",
    "'%x %X %o' % (255, 255, 8)", "'%.3s|%5s|%-5s|' % ('abcdef', 'é', 'é')", "'%e %g %G' % (12345.678, 0.00001, 1e20)",
    "'%i' % 3.9", "'%d' % 'a'", "'%5%'", "'%c' % 'a'", "'%q' % 1", "'%' % 1", "'%s' % missing", "'%.2f' % 1",
    "'{} {}'.format(1, 'a')", "'{1} {0} {{}}'.format(1, 2)", "'{a}'.format(a=none)", "'{}'.format()",
    "name.upper().lower().title()", "name is string and name|length > 3", "missing is defined",
    "missing is not defined", "not missing is defined", "point.q is none", "1 if yes", "1 if no", "(1 if no) is defined",
    "1 if no else 2 if no else 3", "'a' if yes else missing.x", "missing or 'x'", "name and empty", "no or none",
    "1 in items_list", "'x' in point", "'lace' in name", "1 in name", "4 not in items_list", "none in mixed",
    "1.0 in items_list", "missing in items_list", "1 in missing", "missing == missing", "missing == none",
    "items_list + [4]", "(1,) + (2,)", "[1] + (2,)", "items_list * 2", "2 * 'ab'", "-1 * 'ab'", "'a' * 'b'", "name + 1",
    "name ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'a'] ~ missing", "[1, 2] < [1, 3]", "(1, 'a') < (1, 'b')", "[1] < ['a']",
    "'a' < 'b'", "'a' < 1", "none < 1", "true < 2", "point == {'y': 'two', 'x': 1.0, 'z': none}", "[1] == (1,)",
    "nested == [[1, 2], [3]]", "big == 9007199254740993", "big == 9007199254740992.0", "big > 9007199254740992.0",
    "('<' | escape) + '<'", "'<' + ('<' | e)", "('<'|safe) ~ '<'", "('a'|safe) is escaped", "['<'|e]", "('<'|e)[0]",
    "name | upper | lower | title", "-3 | abs", "(-3) | abs", "2 + -3 | abs", "words | sort | join('-') | upper",
    "people | map(attribute='tags.0') | list", "people | groupby('age')", "name | unknown_filter", "name is unknown_test",
    "people | selectattr('name', 'unknown_test') | list", "words | map('unknown_filter') | list",
    "people|selectattr('age', 'in', [25])|list|length", "'abc'|map('upper')|join", "people|sum(attribute='age')/2",
    "'a-b (c d){e' | title", "'hello wOrLd-foo' | title", "loop", "self", "caller", "a b", "1 +", "(1", "[1, 2", "{1: }", "name.",
    "name|", "name is", "name[", "'open", "f(*args)", "name.__class__", "name['__class__']", "dict.x", "range", "not", "in", "@", "1 ? 2",
    "name.strip", "name.strip is callable", "missing()", "name()", "5()", "missing|length", "missing|list", "missing|upper", "missing + 1",
    "missing.a", "missing['a']", "missing[0:1]", "-missing", "missing|int", "missing|tojson", "missing|join", "[missing]", "one[0:1]", "none[0]",
    "items_list|first is odd", "items_list is sequence and items_list is iterable", "1 is odd is true", "yes is true and no is false",
    "'%s' | format(name)", "'%(a)s' | format(a=1)", "name|default", "name[1:3] ~ name[:-2] ~ name[-3:]", "{'a': 1}.items()[0]",
    "odd_keys|dictsort", "{'b': 1, 'A': 2}|dictsort(case_sensitive=true)", "1, 2", "1,", "[1, 2][0], 'b'", "people[0].name[0]|lower ~ '!'",
]
SLICED = ["name", "emoji", "items_list", "(1, 2, 3, 4)", "empty", "hollow", "point", "missing"]
BOUNDS = ["", "0", "1", "-2", "5", "-9", "none"]
STEPS = ["", ":", ":2", ":-1", ":-2", ":0"]

STATEMENTS = [
    # loops
    "{% for i in items_list %}{{ i }}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for i in items_list %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem is defined }}{{ loop.cycle('a', 'b') }}{{ loop }}{% endfor %}",
    "{% for i in hollow %}x{% else %}none{% endfor %}{% for i in [1] %}x{% else %}none{% endfor %}",
    "{% for k, v in point.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in point|dictsort %}{{ k }}{% endfor %}",
    "{% for k in point %}{{ k }}{% endfor %}{% for c in 'aé👍' %}[{{ c }}]{% endfor %}{% for x in missing %}x{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for (a,) in [[1]] %}{{ a }}{% endfor %}", "{% for a, in [[1]] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in none %}{% endfor %}", "{% for x in items_list if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }}{% else %}no{% endfor %}",
    "{% for x in items_list if x > 9 %}{{ x }}{% else %}no{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in items_list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}-{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% break %}", "{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in [1] recursive %}{{ x }}{% endfor %}",
    "{% for x in words|map('upper') %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% set g = words|map('upper') %}{{ g|first }}{{ g|join }}{{ g|join }}{{ 'true' if g }}",
    "{% set g = words|select %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}empty{% endfor %}",
    # scopes
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in [1, 2] %}{% if loop.first %}{% set a = 5 %}{% endif %}{{ a }}|{% endfor %}{{ a }}",
    "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% for i in [1] %}{% endfor %}{{ i }}{{ loop }}",
    "{% set i = 9 %}{% for i in [1] %}{{ i }}{% endfor %}{{ i }}", "{% set ns = namespace(n=0) %}{% for i in items_list %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace(a=1) %}{% set ns.b = [ns.a] %}{{ ns.b }}{{ ns['a'] }}{{ ns.c is defined }}{{ ns is mapping }}", "{% set point.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set nope.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set ns = namespace() %}{% set ns.a, x = 1, 2 %}{{ ns.a }}{{ x }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}", "{% set x | upper | replace('A', 'z') %}a{{ 'b' }}{% endset %}{{ x }}", "{% set ns = namespace() %}{% set ns.t %}q{% endset %}{{ ns.t }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set none = 1 %}", "{% set x == 1 %}", "{% set 1 = x %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% set q = 1 %}{% endwith %}{{ q is defined }}", "{% with %}x{% endwith %}",
    "{% generation %}{% set v = 1 %}x{{ v }}{% endgeneration %}{{ v is defined }}", "{% for m in words %}{% generation %}{{ m }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% filter upper %}abc{{ name }}{% endfilter %}", "{% filter replace('a', 'b')|title %}abc aa{% endfilter %}", "{% filter %}x{% endfilter %}",
    # macros
    "{% macro m(a, b=2, c=none) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=4) }}|{{ m(b=5, a=6) }}|{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m('x')|upper }}", "{% macro m() %}{{ q }}{% endmacro %}{% set q = 3 %}{{ m() }}", "{% set q = 1 %}{% macro m() %}{{ q }}{% set q = 2 %}{{ q }}{% endmacro %}{{ m() }}{{ q }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{% for i in [1] %}{{ loop.index }}{{ i }}{% endfor %}{% endmacro %}{{ m() }}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}x{% endmacro %}{{ m is callable }}{{ m is defined }}",
    "{% macro m(x) %}\n  {{ x }}\n{% endmacro %}\n[{{ m(1) }}]", "{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1) }}", "{% call m() %}{% endcall %}", "{% if yes %}{% macro m() %}in{% endmacro %}{% endif %}{{ m() }}",
    # conditions and syntax
    "{% if zero %}a{% elif empty %}b{% elif name %}c{% else %}d{% endif %}", "{% if hollow or no_keys or nothing or missing %}a{% else %}b{% endif %}", "{% if not missing %}a{% endif %}", "{% if point %}a{% endif %}{% if namespace() %}b{% endif %}{% if 0.0 %}c{% endif %}{% if range(0) %}d{% endif %}",
    "{% if %}x{% endif %}", "{% if yes %}x", "{% endif %}", "{% else %}", "{% unknown %}", "{% include 'x' %}", "{% extends 'x' %}", "{% block b %}x{% endblock %}", "{% import 'x' as y %}", "{% do x %}", "{% autoescape true %}x{% endautoescape %}", "{%%}", "{{}}", "{{ }}", "{{ 1", "{% if 1", "{# x", "{% raw %}x",
    "{% if yes %}x{% endfor %}", "{{ 1 }} }} %} #}", "{ { } % # {a", "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{% raw %}{{ x }}{% if %}{# #}{% endraw %}", "{%- raw -%}  {{ x }}  {%- endraw -%}  y", "{% raw %}\n a\n{% endraw %}\nb",
    "{# {{ 1 }} {% if %} #}x", "{% if yes: %}x{% endif %}", "{{ name # comment }}", "{% set x = [\n1,\n2\n] %}{{ x }}", "a\r\nb\rc\n", "a\n\n", "\n", "", "{{ 'a\\\nb' }}", "{{ \"tab\\there\" }}", "{% for x in words -%} {{ x }} {%- endfor %}", "{{ raise_exception('multi\nline') }}", "{{ name }}\n{{ name }}\n",
    "{% set d = {'a': 1} %}{% set d = dict(d, b=2) %}{{ d }}", "{% set s = 'x' %}{% for i in range(3) %}{% set s = s ~ i %}{% endfor %}{{ s }}", "{% if x is defined %}{% endif %}{{ x }}", "{% set range = 5 %}{{ range }}", "{% set loop = 3 %}{{ loop }}",
    "{% for m in people %}{{ m.name }}{{ ', ' if not loop.last else '.' }}{% endfor %}", "{% for t in people|map(attribute='tags')|select('defined') %}{{ t|tojson }}{% endfor %}",
]

TAGS = [("{%", " if yes ", "%}", "{%", " endif ", "%}"), ("{{", " 'v' ", "}}", "{{", " 'w' ", "}}"),
        ("{#", " c ", "#}", "{#", " d ", "#}"), ("{%", " raw ", "%}", "{%", " endraw ", "%}"),
        ("{%", " set q ", "%}", "{%", " endset ", "%}{{ q }}")]
SPACES = [("a", "b", "c"), ("a\n", "\nb\n", "\nc"), ("a\n  ", "\n\n  b\n\t", "  \n c\n"),
          (" \t", "  ", "\n\n"), ("\n\u00a0 ", " \u2003b ", "\u00a0\n")]


def expressions():
    for left, operator, right in itertools.product(ATOMS, OPERATORS, ATOMS):
        # Python would work out such a power to its last digit.
        if operator != "**" or right not in ("big", "9223372036854775807"):
            yield f"({left}) {operator} ({right})"
    for subject, call in itertools.product(FILTER_SUBJECTS, FILTERS):
        yield f"({subject}) | {call}"
    for subject, test in itertools.product([*ATOMS, *FILTER_SUBJECTS], TESTS):
        yield f"({subject}) is {test}"
    for subject, call in itertools.product(STRINGS, STRING_METHODS):
        yield f"({subject}).{call}"
    for subject, start, stop, step in itertools.product(SLICED, BOUNDS, BOUNDS, STEPS):
        yield f"({subject})[{start}:{stop}{step}]"
    yield from OTHER_CALLS


def whitespace():
    combinations = itertools.product(["", "-", "+"], repeat=4)
    for tag, space, signs in itertools.product(TAGS, SPACES, combinations):
        yield (space[0] + tag[0] + signs[0] + tag[1] + signs[1] + tag[2] + space[1] + tag[3] +
               signs[2] + tag[4] + signs[3] + tag[5] + space[2])


def random_expression(choice, depth):
    if depth == 0:
        return choice(["1", "2", "0", "3.5", "'a'", "name", "yes", "none", "items_list", "missing",
                       "-1", "point.x", "words[0]", "[1, 2]", "nested[0]"])

    def sub():
        return random_expression(choice, depth - 1)

    kind = choice(["binary"] * 6 + ["not", "minus", "if", "filter", "test", "list", "group", "in"])
    if kind == "binary":
        return f"{sub()} {choice(OPERATORS)} {sub()}"
    if kind == "not":
        return f"not {sub()}"
    if kind == "minus":
        return f"-{sub()}"
    if kind == "if":
        return f"{sub()} if {sub()} else {sub()}"
    if kind == "filter":
        return f"{sub()} | {choice(['string', 'list', 'length', 'abs', 'upper', 'default(1)', 'int'])}"
    if kind == "test":
        return f"{sub()} is {choice(['', 'not '])}{choice(['defined', 'none', 'string', 'number', 'odd'])}"
    if kind == "list":
        return f"[{sub()}, {sub()}]"
    if kind == "in":
        return f"{sub()} {choice(['in', 'not in'])} {sub()}"
    return f"({sub()})"


def random_expressions(count, seed=1):
    generator = random.Random(seed)
    for _ in range(count):
        yield random_expression(generator.choice, generator.randint(1, 4))


def snippets():
    for expression in itertools.chain(expressions(), random_expressions(3000)):
        yield "{{ " + expression + " }}"
    yield from STATEMENTS
    yield from whitespace()
