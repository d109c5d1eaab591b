"""Secrets: what must not be stored or shown again is masked before anything else looks at a text."""

from __future__ import annotations

import re

MASK = "***"
_NAME = (
    r"(?:[A-Za-z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIALS?|PRIVATE_?KEY|COOKIE|AUTHORIZATION)"
    r"[A-Za-z0-9_]*|[A-Za-z0-9_]*(?:_AK|_SK|_PWD|PASSPHRASE)|(?-i:[A-Z0-9_]+_PASS|PASS(?==))|auth)"
)
_CHINESE = "密码|口令|密钥|令牌"
_HARMLESS = re.compile(
    r"token(?:izer|s|_num|_ids?|_drop|_dispatcher|s_per|_percent)|(?:pad|bos|eos|ignore|num|special|unk|mask|image|max|cold)_token"
    r"|token_(?:drop|dispatcher|distribution|percent)|save_token",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    rf"(?P<before>(?:(?<![\w.])['\"]?(?P<name>{_NAME})['\"]?|{_CHINESE})\s*[=:：]\s*(?:\\\n\s*)?)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|,#}}]+)",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"(?P<before>--(?P<name>[\w-]*(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|credentials?)[\w-]*)(?:\s+|=))"
    r"(?P<value>[^\s-][^\s]*)",
    re.IGNORECASE,
)
_KEYED = re.compile(
    r"(?P<before>(?:--[\w-]*key(?:\s+|=)|(?<![\w.-])[\w-]*key['\"]?\s*[:=]\s*)['\"]?)"
    r"(?P<value>(?=[A-Za-z+/_-]*\d)[A-Za-z0-9+/_-]{20,}={0,2})(?![\w/.])"
    r"|(?P<before2>(?<![\w.-])(?:ak|sk)['\"]?\s*[:=]\s*['\"]?)(?P<value2>[A-Za-z0-9+/_-]{16,}={0,2})",
    re.IGNORECASE,
)
"""What is called a key and looks like one: long, with digits; and both halves of a key of object storage."""
_KNOWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{12,}|xox[bap]-[\w-]{10,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_SPACED = re.compile(
    rf"(?P<before>^[ \t]*(?:ENV|ARG|setenv|set|export)[ \t]+(?P<name>{_NAME})[ \t]+)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s=]\S*)",
    re.IGNORECASE | re.MULTILINE,
)
"""An assignment without a sign: of a Dockerfile, or of a C shell."""
_IN_ADDRESS = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]*://(?:[^\s/:@]*:)?)(?P<value>(?<=:)(?<!://)[^\s/@]+|(?<=://)[^\s/:@]{16,})(?=@)", re.IGNORECASE
)
_COMMANDS = re.compile(
    r"(?P<before>\bsshpass\s+-p\s*|\bcurl\b[^\n|;]*?\s(?:-u|--user)\s+['\"]?[^\s:]+:|\bwandb\s+login\s+(?:--\w+\s+)*|--wandb[\w-]*key[\s=]+)"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s'\"-][^\s'\"]*)"
)
"""Words of commands that hold a secret without calling it one."""
_BEARER = re.compile(r"(?P<before>\bBearer\s+)(?P<value>[\w.~+/-]{8,}=*)", re.IGNORECASE)
_NUMBER = re.compile(r"['\"]?(?:[-+]?\d{1,9}(?:\.\d+)?|true|false|none|null|)['\"]?", re.IGNORECASE)


def masked(text: str) -> tuple[str, int]:
    """The text with the values of secrets replaced by `***`, and how many there were; small numbers and flags are no secrets."""
    count = 0

    def hide(found: re.Match[str]) -> str:
        nonlocal count
        groups = {name.removesuffix("2"): value for name, value in found.groupdict().items() if value is not None}
        name, value = groups.get("name") or "", groups.get("value")
        if (name and _HARMLESS.search(name)) or (name and value is not None and _NUMBER.fullmatch(value)) or value == MASK:
            return found[0]
        count += 1
        return f"{groups.get('before') or ''}{MASK}"

    for pattern in (_BEARER, _ASSIGNED, _SPACED, _OPTION, _KEYED, _COMMANDS, _IN_ADDRESS, _KNOWN):
        text = pattern.sub(hide, text)
    return text, count
