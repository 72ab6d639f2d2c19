import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { nextRequestId } from '../../../src/upstream/rpc/request-ids.ts';

const MODULE = fileURLToPath(new URL('../../../src/upstream/rpc/request-ids.ts', import.meta.url));

/** The first ids of another process. */
function idsElsewhere(count: number): number[] {
  const script = `const { nextRequestId } = await import(${JSON.stringify(MODULE)});
    console.log(JSON.stringify(Array.from({ length: ${count} }, nextRequestId)));`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
  return JSON.parse(stdout);
}

// N-20
test('no id repeats within a process, and each fits 32 bits', () => {
  const ids = new Set<number>();
  for (let n = 0; n < 1_000_000; n++) {
    const id = nextRequestId();
    assert.ok(Number.isInteger(id) && id > 0 && id < 2 ** 31);
    ids.add(id);
  }
  assert.equal(ids.size, 1_000_000);
});

// N-20
test('ids differ between processes, and cannot be derived from earlier ids', () => {
  const [here, there] = [idsElsewhere(50), idsElsewhere(50)];
  assert.deepEqual(
    here.filter((id) => there.includes(id)),
    [],
  );
  const steps = here.slice(1).map((id, at) => id - (here[at] ?? 0));
  assert.ok(new Set(steps).size > 40);
});
