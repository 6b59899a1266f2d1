#!/usr/bin/python3
"""Docker's default seccomp profile as a filter for bubblewrap. Debian's Python, for the module seccomp.

Usage: docker_filter.py PROFILE.json ARCHITECTURE OUTPUT [CALL...]
The profile is moby's default.json. A container has Docker's usual capabilities: rules for others are left out. Calls
that are named are refused, too, as newer profiles refuse io_uring. With - for the profile, only these are refused.
"""
import json
import sys

import seccomp

CAPABILITIES = {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
                "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",
                "CAP_AUDIT_WRITE"}
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
COMPARISONS = {"SCMP_CMP_NE": seccomp.NE, "SCMP_CMP_LT": seccomp.LT, "SCMP_CMP_LE": seccomp.LE,
               "SCMP_CMP_EQ": seccomp.EQ, "SCMP_CMP_GE": seccomp.GE, "SCMP_CMP_GT": seccomp.GT,
               "SCMP_CMP_MASKED_EQ": seccomp.MASKED_EQ}


def applies(rule, architecture):
    includes, excludes = rule.get("includes", {}), rule.get("excludes", {})
    if set(includes.get("caps", [])) - CAPABILITIES or CAPABILITIES & set(excludes.get("caps", [])):
        return False
    return architecture in includes.get("arches", [architecture]) and architecture not in excludes.get("arches", [])


def argument(each):
    comparison = COMPARISONS[each["op"]]
    if comparison == seccomp.MASKED_EQ:
        return seccomp.Arg(each["index"], comparison, each["value"], each.get("valueTwo", 0))
    return seccomp.Arg(each["index"], comparison, each["value"])


def new_filter(action, architecture):
    made = seccomp.SyscallFilter(action)
    wanted = seccomp.Arch(ARCHITECTURES[architecture])
    if not made.exist_arch(wanted):
        made.add_arch(wanted)
        made.remove_arch(seccomp.Arch())
    return made


def add(made, action, name, arguments=()):
    try:
        made.add_rule(action, name, *arguments)
    except (RuntimeError, ValueError, OSError):
        pass  # a call that this processor does not have, or libseccomp does not know


def main():
    profile_path, architecture, output, *refused = sys.argv[1:]
    refusal = seccomp.ERRNO(1)
    if profile_path == "-":
        made = new_filter(seccomp.ALLOW, architecture)
        for name in refused:
            add(made, refusal, name)
    else:
        with open(profile_path, encoding="utf-8") as file:
            profile = json.load(file)
        assert profile["defaultAction"] == "SCMP_ACT_ERRNO", profile["defaultAction"]
        made = new_filter(seccomp.ERRNO(profile.get("defaultErrnoRet", 1)), architecture)
        for rule in profile["syscalls"]:
            if not applies(rule, architecture):
                continue
            action = seccomp.ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else seccomp.ERRNO(rule.get("errnoRet", 1))
            for name in rule["names"]:
                if name not in refused and action != made_default(profile):
                    add(made, action, name, [argument(each) for each in rule.get("args") or []])
    with open(output, "wb") as file:
        made.export_bpf(file)


def made_default(profile):
    return seccomp.ERRNO(profile.get("defaultErrnoRet", 1))


if __name__ == "__main__":
    main()
