"""wrk as a generator of load; https://github.com/wg/wrk, Debian's package wrk."""

import json
import os
import pathlib
import subprocess

# Latencies are in microseconds. An answer other than 2xx and 3xx is an error.
_SCRIPT = """
local bodies, requests, turn = {}, {}, 0
for line in io.lines(%(bodies)s) do bodies[#bodies + 1] = line end
function init(args)
  local headers = {["Content-Type"] = "application/json",
                   ["Authorization"] = "Bearer %(key)s"}
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", nil, headers, body)
  end
end
function request()
  turn = turn %% #requests + 1
  return requests[turn]
end
function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    'FIGURES {"requests": %%d, "seconds": %%f, "errors": %%d, ' ..
    '"p50_ms": %%f, "p99_ms": %%f}\\n',
    summary.requests, summary.duration / 1e6,
    e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


def run(program, url, bodies, connections, seconds, key=""):
    """Runs wrk with one thread; returns figures as those of `serving_load`.

    Args:
        program: its path.
        url: where to send requests.
        bodies: file with one body per line.
        connections: how many connections are kept busy.
        seconds: how long; whole seconds, at least one.
        key: API key.
    """
    script = pathlib.Path(bodies).with_name("load.lua")
    values = {"bodies": json.dumps(str(bodies)), "key": key}
    script.write_text(_SCRIPT % values, encoding="ascii")
    arguments = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
    # A request that takes so long is an error.
    arguments += ["--timeout", "10s", "-s", str(script), url]
    before = os.times()
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=True
    )
    after = os.times()
    cpu = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
    line = next(x for x in done.stdout.splitlines() if x.startswith("FIGURES "))
    found = json.loads(line.removeprefix("FIGURES "))
    found["requests_s"] = round(found["requests"] / found["seconds"], 2)
    return {**found, "cpu_s": round(cpu, 2), "generator": "wrk"}
