/** Compiles `src/` to `dist/`, for the package and the image: Node takes no TypeScript from below `node_modules`. */
import { spawnSync } from 'node:child_process';
import { chmod, rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const root = new URL('..', import.meta.url);
const dist = new URL('dist/', root);

await rm(dist, { recursive: true, force: true });
const tsc = fileURLToPath(new URL('node_modules/typescript/bin/tsc', root));
const project = fileURLToPath(new URL('tsconfig.build.json', root));
const { status } = spawnSync(process.execPath, [tsc, '-p', project], { stdio: 'inherit' });
if (status === 0) await chmod(new URL('main.js', dist), 0o755);
process.exitCode = status ?? 1;
