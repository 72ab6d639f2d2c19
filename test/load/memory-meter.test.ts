import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { MemoryMeter } from '../../src/load/memory-meter.ts';

/** Makes a folder with these files, as Linux shows cgroups. */
function system(files: Readonly<Record<string, string>>) {
  const root = mkdtempSync(join(tmpdir(), 'linkspan-cgroup-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return { root, [Symbol.dispose]: () => rmSync(root, { recursive: true }) };
}

const STAT = 'anon 5\ninactive_file 100\ntotal_inactive_file 300\nactive_file 7\n';

const cases = [
  {
    name: 'version 2 in a container',
    files: {
      'proc/self/cgroup': '0::/\n',
      'sys/fs/cgroup/memory.max': '1000\n',
      'sys/fs/cgroup/memory.current': '900\n',
      'sys/fs/cgroup/memory.stat': STAT,
    },
    share: 0.8,
  },
  {
    name: 'version 2, with the least limit above the own cgroup',
    files: {
      'proc/self/cgroup': '0::/a.slice/b\n',
      'sys/fs/cgroup/a.slice/b/memory.max': 'max\n',
      'sys/fs/cgroup/a.slice/memory.max': '1000\n',
      'sys/fs/cgroup/a.slice/memory.current': '600\n',
      'sys/fs/cgroup/a.slice/memory.stat': STAT,
    },
    share: 0.5,
  },
  {
    name: 'version 1 beside an empty version 2, with the path of the host',
    files: {
      'proc/self/cgroup': '9:name=systemd:/\n4:memory:/docker/abc\n0::/\n',
      'sys/fs/cgroup/memory/memory.limit_in_bytes': '1000\n',
      'sys/fs/cgroup/memory/memory.usage_in_bytes': '1000\n',
      'sys/fs/cgroup/memory/memory.stat': STAT,
    },
    share: 0.7,
  },
  {
    name: 'version 1 without a limit',
    files: {
      'proc/self/cgroup': '4:memory:/\n',
      'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
      'sys/fs/cgroup/memory/memory.usage_in_bytes': '1000\n',
      'sys/fs/cgroup/memory/memory.stat': STAT,
    },
    share: 0,
  },
  { name: 'no cgroups', files: { 'proc/self/status': '' }, share: 0 },
];

for (const { name, files, share } of cases) {
  // R20
  test(`the memory of ${name}`, () => {
    using at = system(files);
    using meter = new MemoryMeter(at.root);
    // No whole collection of the heap has been seen yet.
    assert.equal(meter.usedShare('of cgroup'), share);
    assert.equal(meter.usedShare('none'), 0);
  });
}

// R20
test('with a limit of its own, the memory of the process counts', () => {
  using meter = new MemoryMeter();
  const rss = process.memoryUsage.rss();
  const share = meter.usedShare(2 * rss);
  assert.ok(share > 0.3 && share < 0.9, `${share}`);
});
