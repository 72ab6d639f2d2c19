import { readFileSync } from 'node:fs';

function readVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const version = typeof manifest === 'object' && manifest !== null && 'version' in manifest ? manifest.version : '';
  return String(version);
}

/** The version in package.json, which is one folder above both `src/` and `dist/`. */
export const VERSION: string = readVersion();
