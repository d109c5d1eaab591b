// Words in the visitor's language: the page holds those of another language than English, by their English.
const holder = globalThis.document?.getElementById("perfkit-texts");
const words = holder ? JSON.parse(holder.textContent) : {};

/** `text` in the language of the page; `{0}`, `{1}` stand for `values`. Texts are literals here, so that a test finds them. */
export function t(text, ...values) {
  return values.reduce((found, value, at) => found.replaceAll(`{${at}}`, value), words[text] ?? text);
}
