/**
 * Installs the peers of the tests: Python packages from PyPI, and Go programs where this machine has Go.
 *
 *     node test/peers/install.ts [--json FILE]
 *
 * What is installed already costs nothing.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { findGo, goPrograms } from './install/go.ts';
import { PYTHON_SETS, pythonWith } from './install/python.ts';
import { typescriptConformanceServer } from './install/typescript.ts';

const { values: options } = parseArgs({ options: { json: { type: 'string' } } });

const go = findGo();
const installations: readonly (readonly [string, () => Promise<string>])[] = [
  ...PYTHON_SETS.map((set) => [set, () => pythonWith(set)] as const),
  ['typescript', typescriptConformanceServer],
  ...(go === undefined ? [] : [['go', () => goPrograms(go)] as const]),
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
if (go === undefined) console.log('NOT TRIED go: no Go on this machine; no package registry of ours has its compiler');
if (options.json !== undefined) await writeFile(options.json, JSON.stringify({ passed, failed }));
process.exitCode = failed === 0 ? 0 : 1;
