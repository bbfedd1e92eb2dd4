#!/usr/bin/env python3
"""Renders snippets of chat templates with transformers and Jinja2, and writes snippets.json beside this file.

usage: snippets.py      needs the packages that hack/test-tokenizers.sh installs
"""
import datetime
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

NOW = datetime.datetime(2025, 7, 1, 8, 5, 9)

VARS = {
    "s": "  Hello, wörld \n",
    "u": "\u00a0\u001c x \u2003",
    "csv": "a,b,,c",
    "think": "<think>\nplan\n</think>\n\nanswer",
    "lines": "one\ntwo\r\n\nfour\n",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What's <up> & \"why\"?"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": 1.0, "z": [True, None]}}}]},
        {"role": "tool", "content": "42"},
    ],
    "tool": {"type": "function", "items": "shadowed", "b": {"é": 1e20, "q": "a'b"}, "a": [1, 2.5, -0.0001, 1e-7], "empty": {}, "none": []},
    "n": 7,
    "f": 3.0,
    "t": True,
    "nothing": None,
    "nested": {"a": {"b": [{"c": "deep"}]}},
    "words": ["b", "A", "c", "a"],
    "people": [{"name": "Zoe", "age": 3}, {"name": "al", "age": 30}, {"name": "Bo", "age": 20}],
}

SNIPPETS = r"""
{{ s }}|{{ n }}|{{ f }}|{{ t }}|{{ nothing }}|{{ missing }}|
{{ messages[2] }}
{{ tool }}
{{ [1, 'a', "it's", none, true, 1.5, ("x",), ()] }}
{{ {'a': 1, "b": [2]} }}
{{ 1, 2 }}
{{ 1e16 }} {{ 123456789.125 }} {{ 0.0001 }} {{ 0.00001 }} {{ 100.0 }}
{{ s|trim }}|{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ u.strip() }}|{{ u|trim }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.rstrip('ab') }}
{{ s|upper }}{{ s|lower }}{{ 'straße'|upper }}{{ 'ΑΣ'|lower }}{{ 'hELLO wORLD'|capitalize }}{{ 'hello-world (x) it\'s'|title }}
{{ csv.split(',') }}{{ csv.split(',', 1) }}{{ csv.split(',', maxsplit=2) }}{{ ' a  b '.split() }}{{ ' a  b c'.split(none, 1) }}{{ csv.rsplit(',', 1) }}
{{ think.split('</think>')[-1].lstrip('\n') }}|{{ think.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}
{{ "it's a-b c2d X".title() }}{{ lines.splitlines() }}{{ lines.splitlines(true) }}
{{ 'abc'.startswith('a') }}{{ 'abc'.startswith(('x', 'ab')) }}{{ 'abc'.endswith('bc') }}{{ 'abcb'.find('b') }}{{ 'abcb'.rfind('b') }}{{ 'wörld'.find('l') }}{{ 'aXbX'.replace('X', '-') }}{{ 'aXbX'.replace('X', '-', 1) }}{{ 'aab'.count('a') }}{{ 'abc'.removeprefix('a').removesuffix('c') }}
{{ '-'.join(['a', 'b']) }}{{ ['a', 1, none]|join('+') }}{{ people|join(', ', attribute='name') }}{{ 'abc'|join('.') }}
{{ messages|length }}{{ 'wörld'|length }}{{ missing|length }}{{ tool|count }}
{{ messages|first }}{{ messages|last }}{{ []|first }}{{ 'abc'|last }}
{{ words|sort }}{{ words|sort(reverse=true) }}{{ words|sort(case_sensitive=true) }}{{ people|sort(attribute='age')|map(attribute='name')|list }}
{{ words|unique|list }}{{ words|reverse|list }}{{ 'abc'|reverse }}{{ words|map('upper')|list }}{{ words|map('replace', 'a', 'z')|list }}
{{ people|selectattr('age', 'gt', 10)|map(attribute='name')|join(',') }}{{ people|rejectattr('name', 'equalto', 'Bo')|list|length }}{{ people|selectattr('missing', 'defined')|list }}{{ [1,0,2]|select|list }}{{ [1,2,3]|reject('odd')|list }}{{ messages|selectattr('role', 'equalto', 'tool')|list|length }}{{ messages|selectattr('tool_calls')|list|length }}
{{ tool|dictsort }}
{{ tool|items|list }}|{{ tool.items()|list }}|{{ tool.keys()|list }}|{{ tool.values()|list }}|{{ tool.get('a') }}|{{ tool.get('zz') }}|{{ tool.get('zz', 'd') }}
{{ tool['items'] }}|{{ nested['items'] is defined }}|{{ nested['items'] is string }}|{{ nested['items'] is callable }}|{{ tool.items is string }}|{{ nested.a.b[0].c }}|{{ nested['a']['b'][0]['c'] }}|{{ nested.a.zz is defined }}
{{ missing|default('x') }}{{ nothing|default('x') }}{{ nothing|default('x', true) }}{{ ''|d('y', boolean=true) }}{{ (missing.x is defined) if missing is defined else 'no' }}
{{ tool|tojson }}
{{ tool|tojson(indent=2) }}
{{ tool|tojson(indent=4, ensure_ascii=true) }}
{{ tool|tojson(separators=(',', ':')) }}{{ tool|tojson(sort_keys=true) }}
{{ messages|tojson }}{{ "tab\t\"q\" \\ \u0001 \u007f é 😀 </script>"|tojson }}{{ 'é😀'|tojson(ensure_ascii=true) }}{{ []|tojson(indent=2) }}{{ {}|tojson(indent=2) }}
{{ lines|indent(2) }}|{{ lines|indent(2, first=true) }}|{{ lines|indent(3, blank=true) }}|{{ 'a\nb'|indent('>>') }}
{{ '42'|int + 1 }}{{ '4x'|int }}{{ '4x'|int(default=9) }}{{ 3.9|int }}{{ '2.5'|float }}{{ -3|abs }}{{ 7|string + 'x' }}{{ ' 8 '|int }}
{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 6 / 2 }}{{ 2 * 3 + 1 }}{{ 'ab' * 2 }}{{ [0] * 2 }}{{ 1.5 + 1 }}{{ 7.0 // 2 }}{{ true + 1 }}{{ -n }}{{ - 2.5 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing ~ [1] }}{{ 'a' + 'b' }}{{ [1] + [2] }}{{ 'a' 'b' "c" }}
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' < 'b' }}{{ 1 == 1.0 }}{{ true == 1 }}{{ 'a' == 1 }}{{ none == none }}{{ [1] == [1] }}{{ messages[0] == messages[0] }}{{ messages[0] != messages[1] }}{{ missing == none }}{{ missing == missing2 }}
{{ 'a' in 'abc' }}{{ 'a' in ['b'] }}{{ 'a' in tool }}{{ 'zz' not in tool }}{{ 1 in [1.0] }}{{ 'x' in missing }}{{ not 'a' in 'abc' }}
{{ not t and t }}{{ t or missing }}{{ '' or 'x' }}{{ 'x' and '' }}|{{ n if t }}{{ n if not t }}{{ 'a' if n > 5 else 'b' if n > 3 else 'c' }}
{{ s is string }}{{ n is string }}{{ tool is mapping }}{{ [] is mapping }}{{ s is iterable }}{{ n is iterable }}{{ nothing is iterable }}{{ s is sequence }}{{ tool is sequence }}{{ [] is sequence }}{{ n is sequence }}{{ missing is sequence }}{{ missing is iterable }}
{{ n is number }}{{ t is number }}{{ f is number }}{{ n is integer }}{{ t is integer }}{{ f is integer }}{{ f is float }}{{ t is boolean }}{{ t is true }}{{ 1 is true }}{{ false is false }}{{ nothing is none }}{{ missing is none }}{{ n is odd }}{{ n is even }}{{ n is divisibleby 7 }}{{ n is divisibleby(2) }}{{ n is not divisibleby 2 }}{{ 'a' is in ['a'] }}{{ 'a' is eq 'a' }}{{ n is gt(3) }}{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ t is sameas true }}{{ range is callable }}{{ missing is callable }}
{{ 'x' ~ n is number }}{{ not n is string }}{{ -1|abs }}{{ 1 + 2|string|length }}
{{ 'hello'[1:3] }}{{ 'hello'[-3:] }}{{ 'hello'[::-1] }}{{ 'hello'[:-1] }}{{ 'hello'[0] }}{{ 'hello'[-1] }}{{ 'wörld'[1] }}{{ 'hello'[10:] }}{{ 'hello'[::2] }}{{ messages[1:]|length }}{{ messages[::-1]|map(attribute='role')|list }}{{ messages[-1].role }}{{ messages[99] }}{{ [1,2,3,4][1:10:2] }}{{ [1,2,3][5:0:-1] }}{{ 'abc'[none:2] }}
{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem.role if not loop.last }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.role }}{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}
{% for k, v in tool.items() if k != 'a' %}{{ k }}={{ v }}{% if not loop.last %}, {% endif %}{% endfor %}{% for k in tool %}{{ k }} {% endfor %}{% for c in 'aé' %}{{ c }}.{% endfor %}{% for (a, b) in [[1, 2]] %}{{ a + b }}{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ range(3)|list }}{{ range(1, 8, 3)|list }}{{ range(3, 0, -1)|list }}
{% for m in messages %}{% if m.role == 'user' %}{% set seen = true %}{% endif %}{{ seen }}{% endfor %}{{ seen is defined }}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(a=1, found=false) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% set ns.new = i %}{% endfor %}{{ ns.a }}{{ ns.new }}{{ ns.found }}{{ ns.zz is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t2 = 1, 2 %}{{ t2 }}{% set c %}x{{ a }}y{% endset %}{{ c }}{{ c|length }}
{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}{{ x }}]{% endmacro %}{{ m(1) }}{{ m(1, b=5) }}{{ m(1, 3, 4) }}{{ m() }}{% set x = 9 %}{{ m(1) }}{{ m(1)|length }}
{% macro r(n) %}{% if n > 0 %}{{ n }}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}
{% macro show(spec, depth=0) -%}{%- for k, v in spec.items() -%}{{ '  ' * depth }}{{ k }}:{% if v is mapping %}{{ '\n' + show(v, depth + 1) }}{% else %} {{ v }}{{ '\n' }}{% endif %}{%- endfor -%}{%- endmacro %}{{ show(nested) }}{{ show({'a': {'b': 1}, 'c': 'x'}) }}
a {%- if t -%} b {%- endif -%} c {{- n -}} d {{ n }} e
x {{ n }}{%- if t %} y{% endif %}z
{% if t %}\n  keep\n{% endif %}\n  {% if t %}\n  in\n  {% endif %}\nout\n    {{ n }}\n\t{%+ if t %}plus{% endif %}\n {#- c -#} \n {# c #}\nend\n
  {% set q = 1 %}\n  {{ q }}\n  {%- set q = 2 %}\n\n{{ q }}  \n  {#- x #}\n y
{{ '{{' }}{{ "}}" }}{% raw %}{{ raw }} {% x %}{% endraw %}{# {{ no }} #}{{ {'a': {'b': 1}} }}
{% raw -%}  \n a {%- endraw %} b
{{ "a\nb\t\"\\\x41\u00e9\q" }}{{ 'it\'s' }}{{ "line
break" }}
{% generation %}said{% endgeneration %}{{ strftime_now('%Y-%m-%d %d %b %Y %B %A %a %H:%M:%S %j %p %y %-d %%') }}
{{ 'x'|safe }}{{ ('<b>' | safe) }}{{ tool.b|tojson|safe }}
{{ ('<'|safe) + '<"\'&>' }}{{ '<' + ('<'|safe) }}{{ ('<'|safe) ~ '<' ~ 1 }}{{ ('x'|safe) is string }}{% set c = ('' | safe) %}{{ c or 'empty' }}{{ c + 'a<' + 'b' }}
{{ "%s-%d%%"|format('a', 7) }}{{ "%s"|format(none) }}{{ '%c'|format(233) }}{{ '1F'|int(base=16) }}{{ 'zz'|int(base=16) }}{{ '0x1f'|int(0, 16) }}
{% if false %}{{ 1|no_such_filter }}{{ 1 is no_such_test }}{% endif %}ok
{{ 1|no_such_filter }}
{{ dict(a=1, b=2)|tojson }}{{ dict({'z': 0}, y=1) }}{{ namespace({'k': 3}).k }}
{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ system }}{{ rest|length }}
{% if nothing %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if missing %}x{% endif %}{% if missing is not defined and not missing %}y{% endif %}
{{ messages[2].tool_calls[0].function.arguments|tojson }}{{ messages[2]['tool_calls'][0]['function']['arguments'].items()|list }}
{%- set content = messages[0].content | trim + '!' %}{{ content }}{{ ('a' ~ 'b')|upper }}{{ 'a' ~ 'b'|upper }}
{{ loop is defined }}{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{{ 'a' if missing else '' }}{{ [missing|default(1), 2]|tojson }}{{ 10000000000 }}{{ 1_000 }}
{% set a = [] %}{% for i in [1,2] %}{% set a = a + [i] %}{% endfor %}{{ a }}
{% set x = 'outer' %}{% macro f() %}{{ x }}{% set x = 'inner' %}{{ x }}{% endmacro %}{{ f() }}{{ x }}
{% for a in [1] %}{% set y = 5 %}{% if true %}{% set y = 6 %}{% endif %}{{ y }}{% endfor %}{{ y }}
{{ raise_exception('no ' ~ n) }}
{{ missing.attribute }}
{{ nothing.attribute is defined }}|{{ n.attribute is defined }}
{{ missing['x'] }}
{{ 'a' + 1 }}
{{ none + 1 }}
{{ [1] < 'a' }}
{{ missing() }}
{% for x in none %}{% endfor %}
{{ tool.update({'a': 1}) }}
{{ messages.append(1) }}
{{ undefined_function(1) }}
{{ 1 / 0 }}
{{ none|items|list }}
{{ missing is defined if n }}
{{ none|length }}
{{ missing|tojson }}
{% set n.x = 1 %}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% set a, b = [1] %}
{{ none|trim }}{{ 5|upper }}{{ true|lower }}
"""


def main():
    cases = []
    snippets = SNIPPETS.strip("\n").replace('"line\nbreak"', '"line\0break"').split("\n")
    for source in snippets:
        source = source.replace("\0", "\n")
        if not source.startswith("{{ \"a") and "\\n  " in source or source.endswith("\\n"):
            source = source.replace("\\n", "\n").replace("\\t", "\t")
        case = {"template": source}
        try:
            template = _compile_jinja_template(source)
            case["want"] = template.render(strftime_now=NOW.strftime, **json.loads(json.dumps(VARS)))
        except Exception as error:
            case["error"] = type(error).__name__
        cases.append(case)
    path = pathlib.Path(__file__).with_name("snippets.json")
    path.write_text(json.dumps({"vars": VARS, "cases": cases}, indent=1, ensure_ascii=False) + "\n")
    print(len(cases), "snippets,", sum("error" in c for c in cases), "of them errors")


main()
