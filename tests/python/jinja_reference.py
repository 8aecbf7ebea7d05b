"""jinja2 set up as Hugging Face transformers sets it up for chat templates."""

import copy
import functools
import json
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %} marks the assistant's tokens; its body is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    environment.globals["dict"] = lambda *args, **kwargs: dict(*args, **kwargs)
    environment.globals["namespace"] = TemplateNamespace
    return environment


ENVIRONMENT = make_environment()


@functools.lru_cache(maxsize=16)
def compile_template(source):
    return ENVIRONMENT.from_string(source)


class Outcome:
    """The text of a rendering, or the message of its error."""

    def __init__(self, text=None, error=None):
        self.text, self.error = text, error

    def __repr__(self):
        return f"text {self.text!r}" if self.error is None else f"error {self.error!r}"


def render(template, variables):
    defaults = {"tools": None, "documents": None, "add_generation_prompt": False}
    try:
        # jinja2's indent filter extends a list in place, so the variables are copied.
        variables = copy.deepcopy({**defaults, **variables})
        text = compile_template(template).render(variables)
        return Outcome(text=text)
    except Exception as error:  # whatever Python raises, the template cannot be rendered
        return Outcome(error=f"{type(error).__name__}: {error}")
