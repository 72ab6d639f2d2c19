/**
 * Installs the peers of the tests: Python packages from PyPI, and programs built with Go, which comes from PyPI if this machine has none.
 *
 *     node test/peers/install.ts [--json FILE]
 *
 * Peers that are installed already take no time.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { goPrograms } from './install/go.ts';
import { PYTHON_SETS, pythonWith } from './install/python.ts';
import { typescriptConformanceServer } from './install/typescript.ts';

const { values: options } = parseArgs({ options: { json: { type: 'string' } } });

const installations: readonly (readonly [string, () => Promise<string>])[] = [
  ...PYTHON_SETS.map((set) => [set, () => pythonWith(set)] as const),
  ['typescript', typescriptConformanceServer],
  ['go', goPrograms],
];

let passed = 0;
let failed = 0;
for (const [name, install] of installations) {
  try {
    console.log(`${name}: ${await install()}`);
    passed++;
  } catch (thrown) {
    console.error(thrown instanceof Error ? thrown.message : thrown);
    failed++;
  }
}
if (options.json !== undefined) await writeFile(options.json, JSON.stringify({ passed, failed }));
process.exitCode = failed === 0 ? 0 : 1;
