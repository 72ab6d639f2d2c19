import { readFile, writeFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { BESIDE_PACKAGES, cached } from './cache.ts';

const SOURCE = new URL('../vendor/everythingServer.ts.txt', import.meta.url);

/**
 * Returns the conformance server of the TypeScript SDK as JavaScript. The text is the SDK's own, unchanged. Node
 * does not
 * run TypeScript below `node_modules`, where the server finds its packages.
 */
export async function typescriptConformanceServer(): Promise<string> {
  const source = await readFile(SOURCE, 'utf8');
  const make = (draft: string) => writeFile(join(draft, 'server.mjs'), stripTypeScriptTypes(source));
  const dir = await cached('typescript-conformance', [source, process.version], make, BESIDE_PACKAGES);
  return join(dir, 'server.mjs');
}
