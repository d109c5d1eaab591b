// Shares in tooltips, told as tables tell them: one too small for people to read is said to be below the least.
const LEAST = 0.001; // percent, as LEAST_PERCENT of perfkit.core.units

/** A share as Vega writes it ("0.0000150%"), or "< 0.001%" where it is smaller; any other text as it is. */
export function leastShare(text) {
  if (typeof text !== "string" || !text.endsWith("%")) return text;
  const share = Number(text.slice(0, -1).replaceAll(",", "").replace("−", "-"));
  if (!share || Number.isNaN(share) || Math.abs(share) >= LEAST) return text;
  if (share < 0) return `> -${LEAST}%`;
  return `< ${text.startsWith("+") ? "+" : ""}${LEAST}%`;
}

/** What a tooltip shows, with its shares as above. */
export function leastShares(shown) {
  if (shown === null || typeof shown !== "object") return leastShare(shown);
  return Object.fromEntries(Object.entries(shown).map(([name, value]) => [name, leastShare(value)]));
}
