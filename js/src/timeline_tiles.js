// Tiles of a timeline: kept by unit, width and place, those used least recently go first. No tile is ever changed.
const BUCKETS = 512;
const BUCKET_NS = 1000;
const MIN_WIDTH = -9;
const MAX_WIDTH = 30;
const MAX_SLICES = 1_500_000; // 52 bytes each: 80 MB
const MAX_TILES = 30_000;

/** How many ns a tile of this width holds. */
export function tileNs(width) {
  return BUCKETS * BUCKET_NS * 2 ** width;
}

/** The widest tiles whose buckets are no wider than a pixel. */
export function widthFor(nsPerPixel) {
  return Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, Math.floor(Math.log2(nsPerPixel / BUCKET_NS))));
}

export class TileStore {
  constructor() {
    this.clear();
  }

  clear() {
    this.tiles = new Map();
    this.slices = 0;
    this.names = [];
    this.nameIds = new Map();
    this.kinds = [];
    this.kindIds = new Map();
  }

  has(unit, width, index) {
    return this.tiles.has(`${unit}/${width}/${index}`);
  }

  get(unit, width, index) {
    const key = `${unit}/${width}/${index}`;
    const tile = this.tiles.get(key);
    if (!tile) return undefined;
    this.tiles.delete(key); // a Map keeps the order of insertion: what is used moves to its end
    this.tiles.set(key, tile);
    return tile;
  }

  /** Takes over a reply of the kernel: {width, tiles, names, kinds} and its arrays. */
  add(reply, buffers, base) {
    const [start, end, count, busy] = buffers.slice(0, 4).map((view) => new Float64Array(copied(view)));
    const [lane, name, kind] = buffers.slice(4).map((view) => new Int32Array(copied(view)));
    const names = reply.names.map((text) => numberOf(text, this.names, this.nameIds));
    const kinds = reply.kinds.map((text) => numberOf(text, this.kinds, this.kindIds));
    for (const tile of reply.tiles) {
      const from = tile.begin;
      const to = from + tile.count;
      const shift = Number(BigInt(tile.base_ns) - base);
      this.put(`${tile.unit}/${reply.width}/${tile.index}`, {
        n: tile.count,
        start: start.slice(from, to).map((offset) => offset + shift),
        end: end.slice(from, to).map((offset) => offset + shift),
        count: count.slice(from, to),
        busy: busy.slice(from, to),
        lane: lane.slice(from, to),
        name: name.slice(from, to).map((number) => (number < 0 ? -1 : names[number])),
        kind: kind.slice(from, to).map((number) => kinds[number]),
      });
    }
    this.makeRoom();
  }

  put(key, tile) {
    this.slices += tile.n - (this.tiles.get(key)?.n ?? 0);
    this.tiles.delete(key);
    this.tiles.set(key, tile);
  }

  makeRoom() {
    for (const [key, tile] of this.tiles) {
      if (this.slices <= MAX_SLICES && this.tiles.size <= MAX_TILES) return;
      this.tiles.delete(key);
      this.slices -= tile.n;
    }
  }

  /** What can be drawn of one tile: [tile, exact]; a coarser one while it is on its way; null if there is none. */
  best(unit, width, index) {
    const exact = this.get(unit, width, index);
    if (exact) return [exact, true];
    for (let up = 1; up <= 12 && width + up <= MAX_WIDTH; up += 1) {
      const tile = this.get(unit, width + up, Math.floor(index / 2 ** up));
      if (tile) return [tile, false];
    }
    return null;
  }
}

function copied(view) {
  return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
}

function numberOf(text, list, ids) {
  if (!ids.has(text)) {
    ids.set(text, list.length);
    list.push(text);
  }
  return ids.get(text);
}
