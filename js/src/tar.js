// An archive (ustar) of files that a visitor dropped: heads and contents one after the other. Nothing is read before it is sent.
const BLOCK = 512;

/** A file named `name` that holds `entries`: `{path, file}`, paths with slashes. */
export function tarOf(name, entries) {
  const parts = entries.flatMap(({ path, file }) => [...heads(path, file.size), file, padding(file.size)]);
  return new File([...parts, new Uint8Array(2 * BLOCK)], name);
}

function heads(path, size) {
  const bytes = new TextEncoder().encode(path);
  if (bytes.length <= 100) return [head(bytes, size, "0")];
  // A longer name stands in an entry of its own before the file (GNU tar).
  const long = new Uint8Array(bytes.length + 1);
  long.set(bytes);
  return [head(new TextEncoder().encode("././@LongLink"), long.length, "L"), long, padding(long.length), head(bytes.slice(0, 100), size, "0")];
}

function head(name, size, type) {
  const block = new Uint8Array(BLOCK);
  const put = (text, at) => block.set(new TextEncoder().encode(text), at);
  block.set(name, 0);
  put("0000644\0", 100);
  put("0000000\0", 108);
  put("0000000\0", 116);
  put(`${size.toString(8).padStart(11, "0")}\0`, 124);
  put("00000000000\0", 136);
  put("        ", 148);
  put(type, 156);
  put("ustar\u000000", 257);
  put(`${block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

const padding = (size) => new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
