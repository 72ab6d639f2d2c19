import { readFileSync } from 'node:fs';

function readVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const version = typeof manifest === 'object' && manifest !== null && 'version' in manifest ? manifest.version : '';
  return String(version);
}

/** The version in package.json, which is one folder above both `src/` and `dist/`. */
export const VERSION: string = readVersion();

/** scripts/build.ts puts the commit here. Undefined from source. */
declare const BUILD_COMMIT: string | undefined;

/** The commit of the build; `unknown` from source, or if the build had no git and no `LINKSPAN_COMMIT`. */
export const COMMIT: string = typeof BUILD_COMMIT === 'string' ? BUILD_COMMIT : 'unknown';
