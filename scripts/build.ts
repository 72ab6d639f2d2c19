/**
 * Bundles `src/` and its dependencies to `dist/`, for the package and the image. Node takes no TypeScript from below `node_modules`,
 * and reading one file is twice as fast as reading 600.
 */
import { execFileSync } from 'node:child_process';
import { chmod, glob, readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = new URL('..', import.meta.url);
const dist = new URL('dist/', root);

/** Some dependencies are CommonJS, and need `require` for the modules of Node. */
const REQUIRE = "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";

/** Returns the commit for `linkspan_build_info`: `LINKSPAN_COMMIT`, which an image is built with, else that of git. */
function commit(): string {
  const given = process.env['LINKSPAN_COMMIT'] ?? '';
  if (given !== '') return given;
  try {
    return execFileSync('git', ['rev-parse', 'HEAD'], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    // No git, or no clone.
    return 'unknown';
  }
}

await rm(dist, { recursive: true, force: true });
const { metafile } = await build({
  absWorkingDir: fileURLToPath(root),
  entryPoints: ['src/main.ts'],
  outdir: 'dist',
  bundle: true,
  splitting: true,
  platform: 'node',
  format: 'esm',
  target: 'node22.19',
  // The modules of packages that have CommonJS beside them, whose `require` cannot always be followed.
  mainFields: ['module', 'main'],
  banner: { js: REQUIRE },
  define: { BUILD_COMMIT: JSON.stringify(commit()) },
  metafile: true,
  logLevel: 'warning',
});
await chmod(new URL('main.js', dist), 0o755);

/** Returns the folders of the packages that are in the bundle, such as `node_modules/hono/`. */
function bundledPackages(inputs: Iterable<string>): string[] {
  const folders = new Set<string>();
  for (const file of inputs) {
    const [folder] = /^.*node_modules\/(?:@[^/]+\/)?[^/]+\//.exec(file) ?? [];
    if (folder !== undefined) folders.add(folder);
  }
  return [...folders].toSorted();
}

/** Returns the licence of a package, which has to accompany its code. @throws {Error} if the package has none. */
async function licenceOf(folder: string): Promise<string> {
  for await (const name of glob('{LICENSE,LICENCE,License,license}*', { cwd: new URL(folder, root) })) {
    return await readFile(new URL(`${folder}${name}`, root), 'utf8');
  }
  throw new Error(`${folder} has no licence file, so that its code may not be put into dist/`);
}

const licences = await Promise.all(
  bundledPackages(Object.keys(metafile.inputs)).map(async (folder) => `## ${folder}\n\n${await licenceOf(folder)}`),
);
await writeFile(new URL('THIRD-PARTY-LICENSES.md', dist), licences.join('\n\n'));
