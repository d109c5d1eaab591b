"""Secrets: what must not be stored or shown again is masked before anything else looks at a text."""

from __future__ import annotations

import re

from perfkit.config.fragments.repair import WIDE

MASK = "***"
_NAME = (
    r"(?:[A-Za-z0-9_]*(?:T[O0]KEN|SECRET|PASSW[O0]RD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIALS?|PRIVATE_?KEY|COOKIE|AUTHORIZATION)"
    r"[A-Za-z0-9_]*|[A-Za-z0-9_]*(?:_AK|_SK|_PWD|PASSPHRASE)|(?-i:[A-Z0-9_]+_(?:PASS|PAT)|PASS(?==))|auth)"
)
_QUOTED = r"\"[^\"\n]*\"|'[^'\n]*'"
_VALUE = rf"(?P<value>{_QUOTED}|\$\([^)\n]*\)|(?:(?:basic|bearer|token)\s+)?[^\s;&|,#}}]+)"
_CHINESE = "密码|口令|密钥|令牌"
_HARMLESS = re.compile(
    r"token(?:iz|s|_num|_ids?|_drop|_dispatcher|s_per|_percent)|(?:pad|bos|eos|ignore|num|special|unk|mask|image|max|cold|per)_token"
    r"|token_(?:drop|dispatcher|distribution|percent)|save_token",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    rf"(?P<before>(?:(?<![\w.])['\"]?(?P<name>{_NAME})['\"]?\]?|{_CHINESE})\s*[=:](?!=)\s*(?:\\\n\s*)?){_VALUE}", re.IGNORECASE
)
_BESIDE = re.compile(
    rf"(?P<before>^[ \t]*(?:ENV|ARG|setenv|setx|set|export)[ \t]+(?P<name>{_NAME})[ \t]+)(?P<value>{_QUOTED}|[^\s=:'\"]\S*)"
    rf"|(?P<before2>\bname['\"]?\s*[:=]\s*['\"]?(?P<name2>{_NAME})['\"]?(?:\s*,)?\s*['\"]?value['\"]?\s*[:=]\s*)(?P<value2>{_QUOTED}|[^\s,}}]+)"
    rf"|(?P<before3>\(\s*['\"](?P<name3>{_NAME})['\"]\s*,\s*)(?P<value3>{_QUOTED})"
    rf"|(?P<before4>(?:^|\|)[ \t]*(?P<name4>(?-i:[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|KEY)))[ ]*[\t|][ ]*)(?P<value4>[^\s|]{{6,}})"
    r"|(?P<before5>(?:密码|口令)\s*(?:为|是)\s*)(?P<value5>[!-~]{6,})",
    re.IGNORECASE | re.MULTILINE,
)
"""Names whose value stands in other ways beside them: of Docker and csh, of containers, of calls, of tables, in a sentence."""
_BLOCK = re.compile(
    r"(?P<before>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:\n|\\n))"
    r"(?P<value>(?:[ \t]*(?:[A-Za-z0-9+/=]|\\n)+[ \t]*(?:\n|$|(?=[-'\"])))+)"
)
"""A key as files hold it, also one whose end was not copied, or that is written in one line."""
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
_IN_ADDRESS = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]{0,20}://(?:[^\s/:@]*:)?)(?P<value>(?<=:)(?<!://)[^\s/@]+|(?<=://)[^\s/:@]{16,})(?=@)",
    re.IGNORECASE,
)
_COMMANDS = re.compile(
    r"(?P<before>\bsshpass\s+-p\s*|\bcurl\b[^\n|;]{0,300}?\s(?:-u|--user)\s+['\"]?[^\s:]+:|\bwandb\s+login\s+(?:--\w+\s+)*|--wandb[\w-]*key[\s=]+"
    r"|\b(?:docker\s+login|mysql)\b[^\n|;]{0,300}?\s-p\s*|\b(?:oss|obs)util\w*\b[^\n|;]{0,300}?\s-k[\s=]+"
    r"|\bmachine\s+\S+\s+login\s+\S+\s+password\s+|\blogin\(\s*(?:key\s*=\s*)?(?=['\"]))"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s'\"-][^\s'\"]*)"
)
"""Words of commands that hold a secret without calling it one."""
_BEARER = re.compile(r"(?P<before>\bBearer\s+)(?P<value>[\w.~+/-]{8,}=*)", re.IGNORECASE)
_NUMBER = re.compile(r"['\"]?(?:[-+]?\d{1,9}(?:\.\d+)?|true|false|none|null|)['\"]?", re.IGNORECASE)


def masked(text: str) -> tuple[str, int]:
    """The text with the values of secrets replaced by `***`, and how many there were; small numbers and flags are no secrets.

    Full-width letters and signs count as the plain ones that they stand for.
    """
    count = 0
    for pattern in (_BLOCK, _BEARER, _ASSIGNED, _BESIDE, _OPTION, _KEYED, _COMMANDS, _IN_ADDRESS, _KNOWN):
        kept, end = [], 0
        for found in pattern.finditer(text if text.isascii() else text.translate(WIDE)):
            if (start := _begin_of_secret(found)) is not None:
                lines = found[0].count("\n", start - found.start())
                kept += [text[end:start], MASK, "\n" * lines]
                end = found.end()
                count += 1
        text = "".join([*kept, text[end:]])
    return text, count


def _begin_of_secret(found: re.Match[str]) -> int | None:
    """Where in the text the value of a secret begins that a pattern found, which ends where it does; None if it is none."""
    groups = {name.rstrip("2345"): name for name, value in found.groupdict().items() if value is not None}
    if "value" not in groups:
        return found.start()
    value, name = found[groups["value"]], found[groups["name"]] if "name" in groups else ""
    if value.endswith(MASK) or (name and (_HARMLESS.search(name) or _NUMBER.fullmatch(value))):
        return None
    return found.start(groups["value"])
