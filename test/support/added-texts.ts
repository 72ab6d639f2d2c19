import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';

/** Texts to add, by the end of the name of a source file: each after a text that the file must have. */
type AddedTexts = Readonly<Record<string, readonly (readonly [place: string, added: string])[]>>;

/** Adds texts to sources when they are loaded, which must come after the call. So everything else is the program as it is. */
export function addToSources(texts: AddedTexts): void {
  registerHooks({
    load: (url, context, nextLoad) => {
      const loaded = nextLoad(url, context);
      const additions = Object.entries(texts).find(([name]) => url.endsWith(name))?.[1];
      if (additions === undefined) return loaded;
      assert.ok(loaded.source instanceof Uint8Array);
      let source = Buffer.from(loaded.source).toString();
      for (const [place, added] of additions) {
        assert.ok(source.includes(place), place);
        source = source.replace(place, `${place}${added}`);
      }
      return { ...loaded, source };
    },
  });
}
