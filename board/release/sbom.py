"""The bill of materials of a release, CycloneDX 1.5: every crate that is compiled in, macros too, from Cargo's own answers.

Not by cargo-cyclonedx: compiling that takes longer than compiling edgeward, for the same list.
"""

import json
import os
import subprocess
import tomllib
import uuid


def make(root, programs, epoch, tools):
    """Covers each program for its own target; features as in a release. No path and no time of this machine."""
    checksums = {
        (package["name"], package["version"]): package.get("checksum")
        for package in tomllib.loads((root / "Cargo.lock").read_text())["package"]
    }
    components, edges, tops = {}, {}, []
    for program, target in programs.items():
        metadata = metadata_of(root, target)
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        top = next(package["id"] for package in metadata["packages"] if package["name"] == program)
        tops.append(reference(packages[top]))
        todo, seen = [top], set()
        while todo:
            if (one := todo.pop()) in seen:
                continue
            seen.add(one)
            below = [dep["pkg"] for dep in nodes[one]["deps"] if compiled_in(dep)]
            todo += below
            package = packages[one]
            components[reference(package)] = component(package, checksums)
            edges.setdefault(reference(package), set()).update(reference(packages[id]) for id in below)
    main = components.pop(tops[0])
    main["type"] = "application"
    stamp = subprocess.run(["date", "-u", "-d", f"@{epoch}", "+%FT%TZ"], check=True, capture_output=True, text=True)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": stamp.stdout.strip(),
            "component": main,
            "properties": [{"name": f"edgeward:{name}", "value": value} for name, value in sorted(tools.items())]
            + [{"name": f"edgeward:target:{name}", "value": target} for name, target in sorted(programs.items())],
        },
        "components": [components[name] for name in sorted(components)],
        "dependencies": [{"ref": name, "dependsOn": sorted(edges[name])} for name in sorted(edges)],
    }
    # Of its content, so that equal bills have equal numbers.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    return bill | {"serialNumber": f"urn:uuid:{number}"}


def metadata_of(root, target):
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--no-default-features"]
    done = subprocess.run(
        [*command, f"--filter-platform={target}"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    return json.loads(done.stdout)


def compiled_in(dep):
    """Not what only tests and build scripts use."""
    return any(kind["kind"] is None for kind in dep["dep_kinds"])


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    name, version = package["name"], package["version"]
    entry = {"type": "library", "bom-ref": reference(package), "name": name, "version": version}
    entry["purl"] = reference(package)
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry
