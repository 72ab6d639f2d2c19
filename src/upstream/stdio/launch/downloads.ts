import { basename } from 'node:path';

/** Programs that download what they run. */
const DOWNLOADERS: ReadonlySet<string> = new Set(
  'npx npm pnpm pnpx yarn bunx bun uvx uv pipx deno docker podman'.split(' '),
);

/** Returns whether a command may have to download its program first. */
export function mayDownload(command: string): boolean {
  return DOWNLOADERS.has(basename(command).replace(/\.(?:cmd|exe)$/i, ''));
}
