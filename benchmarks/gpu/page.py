"""The page of the results: one table for each step."""

import json
import pathlib

NAME = "index.html"
TEMPLATE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>plsc_tf on a GPU</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em;
       padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: 0.5em 0 }
th, td { border-bottom: 1px solid #ddd; padding: 0.2em 0.8em; text-align: right }
th:first-child, td:first-child, td.words { text-align: left }
.failed { color: #a00 } .quiet { color: #666 }
</style>
<h1>plsc_tf on a GPU</h1>
{% for report in reports %}
<h2>{{ report.step }}: {{ report.title }}</h2>
<p class="quiet">{{ report.gpu.name }}, driver {{ report.gpu.driver_version }};
{{ report.machine.processor }}, {{ report.machine.cores }} cores;
{{ report.date }}, {{ report.seconds }} s{{ ", toy sizes" if report.toy }}</p>
{% for table in report.tables %}
<table>
<tr><th>{% for column in table.columns %}<th>{{ column | replace("_", " ") }}
{% endfor %}</tr>
{% for part in table.parts %}
<tr><td>{{ part.name }}
{% if part.figures is defined %}
{% for column in table.columns %}<td>{{ shown(part.figures[column]) }}
{% endfor %}
{% else %}
<td class="words {{ 'failed' if part.error is defined }}"
 colspan="{{ table.columns | length }}">{{ part.error or part.skipped }}
{% endif %}</tr>
{% endfor %}
</table>
{% endfor %}
{% endfor %}
</html>
"""


def text(folder):
    """Returns the page for the JSON files of all steps in a folder."""
    import jinja2

    environment = jinja2.Environment(autoescape=True)
    reports = []
    for letter in "ABCDEFG":
        path = pathlib.Path(folder, f"{letter}.json")
        if path.exists():
            report = json.loads(path.read_text(encoding="utf-8"))
            compared = [{"name": "", "figures": f} for f in report.get("compared", [])]
            tables = [*_tables(report["parts"]), *_tables(compared)]
            reports.append({**report, "tables": tables})
    template = environment.from_string(TEMPLATE)
    return template.render(reports=reports, shown=_shown)


def _tables(parts):
    """Yields `columns` and `parts` of each table: figures of one kind share a table."""
    table = {"columns": [], "parts": []}
    for part in parts:
        names = [name for name in part.get("figures", {}) if name != "details"]
        if names and table["columns"] and not set(names) & set(table["columns"]):
            yield table
            table = {"columns": [], "parts": []}
        table["columns"] = list(dict.fromkeys([*table["columns"], *names]))
        table["parts"].append(part)
    if table["parts"]:
        yield table


def _shown(value):
    """Returns a figure as text; one that a part does not have is empty."""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None or not isinstance(value, (str, bool)) else str(value)
