import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { ProcessUsages } from '../../../src/upstream/stdio/process-usage.ts';
import { TAG_NAME, TaggedProcesses, tagVariables } from '../../../src/upstream/stdio/tagged-processes.ts';

const TIMEOUT = { timeout: 120_000 };

/** A shell with a child of its own. */
async function withProcesses(tagged: TaggedProcesses, owner: string): Promise<ChildProcess> {
  const env = { ...process.env, [TAG_NAME]: tagged.next(owner) };
  const child = spawn('sh', ['-c', 'sleep 60 & echo up; read -r line; kill $!'], { env, stdio: 'pipe' });
  if (child.stdout !== null) await once(child.stdout, 'data');
  return child;
}

// N-07
test('usage has the processes of an upstream, with all that they have started', TIMEOUT, async () => {
  const tagged = new TaggedProcesses();
  const child = await withProcesses(tagged, 'files');
  try {
    const usage = (await new ProcessUsages(tagged, assert.fail).byUpstream()).get('files');
    assert.equal(usage?.processes, 2);
    assert.ok((usage.memoryBytes ?? 0) > 50_000, `${usage.memoryBytes} bytes`);
    assert.match(usage.memoryNote, /^PSS/);
  } finally {
    child.stdin?.end('\n');
    await once(child, 'exit');
  }
});

// N-07
test('usage has what a gateway among the processes has started, which it ends itself', TIMEOUT, async (t) => {
  const tagged = new TaggedProcesses();
  process.env[TAG_NAME] = tagged.next('inner');
  t.after(() => delete process.env[TAG_NAME]);
  const env = { ...process.env, ...tagVariables(new TaggedProcesses().next('files')) };
  const child = spawn('sh', ['-c', 'echo up; read -r line'], { env, stdio: 'pipe' });
  await once(child.stdout, 'data');
  try {
    const usage = await new ProcessUsages(tagged, assert.fail).byUpstream();
    assert.deepEqual([...usage.keys()], ['inner']);
    assert.equal(usage.get('inner')?.processes, 1);
    assert.equal((await tagged.pidsByTag()).size, 0);
  } finally {
    child.stdin.end('\n');
    await once(child, 'exit');
  }
});

// N-07
test('limit statusProcesses: beyond it, processes are counted without their memory', TIMEOUT, async () => {
  const many = Array.from({ length: LIMITS.statusProcesses + 1 }, () => process.pid);
  const tagged = { pidsByUpstream: async () => new Map([['files', many]]) };
  const reached: LimitName[] = [];
  const usages = new ProcessUsages(tagged, (limit) => reached.push(limit));
  const usage = (await usages.byUpstream()).get('files');
  assert.deepEqual([usage?.processes, usage?.memoryBytes], [LIMITS.statusProcesses + 1, undefined]);
  assert.match(usage?.memoryNote ?? '', /unknown: not read.* 1024 processes/);
  assert.deepEqual(reached, ['statusProcesses']);
});

const KERNELS = [
  { what: 'PSS is not shown', file: 'status', text: 'Name:\tx\nVmRSS:\t    2048 kB\n', bytes: 2_097_152, note: /^RSS/ },
  { what: 'nothing is shown', file: 'other', text: '', bytes: undefined, note: /^unknown: the system/ },
];

for (const { what, file, text, bytes, note } of KERNELS) {
  // N-07
  test(`if ${what}, the memory note says so`, async () => {
    const procDir = await mkdtemp(join(tmpdir(), 'linkspan-proc-'));
    try {
      await mkdir(join(procDir, '7'));
      await writeFile(join(procDir, '7', file), text);
      const tagged = { pidsByUpstream: async () => new Map([['files', [7]]]) };
      const usage = (await new ProcessUsages(tagged, assert.fail, procDir).byUpstream()).get('files');
      assert.equal(usage?.memoryBytes, bytes);
      assert.match(usage?.memoryNote ?? '', note);
    } finally {
      await rm(procDir, { recursive: true });
    }
  });
}
