"""nginx as a TLS front on loopback, certificate and CA made here: prints `ready PORT CA_FILE`, ends when stdin closes."""

import argparse
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CONFIG = """
daemon off;
master_process off;
pid {dir}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {dir}/server.pem;
    ssl_certificate_key {dir}/server.key;
    location / {{
      proxy_pass http://127.0.0.1:{upstream};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 300s;
    }}
  }}
}}
"""


def openssl(directory: pathlib.Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"openssl {arguments[0]}: {done.stderr}")


def make_certificates(directory: pathlib.Path) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(
        directory, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
        "-subj", "/CN=edgeward test CA",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
    )
    openssl(directory, "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (directory / "server.ext").write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"
    )
    openssl(
        directory, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", "server.ext", "-out", "server.pem",
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_nginx(directory: pathlib.Path, upstream: int) -> tuple[subprocess.Popen, int]:
    # nginx cannot choose a port itself. Should another take ours first, it ends, and we try the next.
    for _ in range(10):
        port = free_port()
        config = directory / "nginx.conf"
        config.write_text(CONFIG.format(dir=directory, port=port, upstream=upstream))
        nginx = subprocess.Popen(["nginx", "-e", "stderr", "-p", directory, "-c", config], stdin=subprocess.DEVNULL)
        while nginx.poll() is None:
            if answers(port):
                return nginx, port
            time.sleep(0.01)
    sys.exit("nginx did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("upstream", type=int, help="the port on 127.0.0.1 that it stands before")
    args = parser.parse_args()

    directory = pathlib.Path(tempfile.mkdtemp(prefix="edgeward-tls-"))
    try:
        make_certificates(directory)
        nginx, port = start_nginx(directory, args.upstream)
        try:
            print(f"ready {port} {directory / 'ca.pem'}", flush=True)
            sys.stdin.read()
        finally:
            nginx.kill()
            nginx.wait()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
