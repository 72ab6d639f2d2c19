import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { ConfigChange } from '../../../src/compose/reload/config-change.ts';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import { FileWatch } from '../../../src/config/files/file-watch.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { Changes } from '../../support/changes.ts';

const TIMEOUT = { timeout: 120_000 };

/** A config whose files are watched or not, with a second file that no config names yet. */
async function watching(isOn: boolean) {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-change-'));
  const [file, other] = [join(dir, 'config.json'), join(dir, 'other.env')];
  const load = async (watch: boolean) => {
    await writeFile(file, JSON.stringify({ mcpServers: {}, gateway: { reload: { watch } } }));
    return await loadConfig(file, { env: { HOME: dir } });
  };
  const loaded = await load(isOn);
  const reported = new Changes();
  let reports = 0;
  let failure: Error | undefined;
  const events: string[] = [];
  const change = new ConfigChange({
    loaded,
    core: {
      prepare: async () => {
        if (failure !== undefined) throw failure;
      },
      apply: async () => {
        events.push('core');
        await setImmediate();
        events.push('core serves');
        return { drained: Promise.resolve() };
      },
    },
    access: { announce: async () => undefined, setConfig: () => undefined },
    log: pino({ level: 'silent' }),
    onFileChange: () => {
      reports++;
      reported.announce();
    },
  });
  const listeners = {
    apply: async () => void events.push('apply'),
    abandon: async () => void events.push('abandon'),
  };
  await change.begin({ operatorOrigin: undefined, prepare: async () => listeners });
  return {
    change,
    file,
    other,
    /** The changes of the core and the listeners. */
    events,
    fail: (error: Error) => {
      failure = error;
    },
    reports: () => reports,
    reported: () => reported.until(() => reports > 0 || undefined),
    apply: async (watch: boolean) => {
      const { config } = await load(watch);
      await change.apply(config, diffConfigs(loaded.config, config));
    },
    [Symbol.asyncDispose]: async () => {
      change.endWatch();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

test('a file that the config has named since the start is watched', TIMEOUT, async () => {
  await using tested = await watching(true);
  await tested.change.setFiles(new Map([[tested.other, undefined]]));
  await writeFile(tested.other, 'A=1');
  await tested.reported();
});

test('a watch that is turned on later watches the latest files', TIMEOUT, async () => {
  await using tested = await watching(false);
  await tested.change.setFiles(new Map([[tested.other, undefined]]));
  await tested.apply(true);
  await writeFile(tested.other, 'A=1');
  await tested.reported();
});

test('a watch that is turned off reports nothing', TIMEOUT, async () => {
  await using tested = await watching(true);
  await tested.change.setFiles(new Map([[tested.other, undefined]]));
  await tested.apply(false);
  const seen = new Changes();
  let count = 0;
  using watch = new FileWatch(() => {
    count++;
    seen.announce();
  });
  await watch.setFiles(new Map([[tested.other, undefined]]));
  // By the second report of this watch, another one would have reported the first change.
  for (const wanted of [1, 2]) {
    await writeFile(tested.other, 'A=1'.repeat(wanted));
    await seen.until(() => count >= wanted || undefined);
  }
  assert.equal(tested.reports(), 0);
});

test('a config that the core refuses leaves the listeners as they were', TIMEOUT, async () => {
  await using tested = await watching(false);
  tested.fail(new Error('no TLS client'));
  await assert.rejects(tested.apply(true), /no TLS client/);
  assert.deepEqual(tested.events, ['abandon']);
});

// SEC-08
test('credentials change in the same turn as the policy', TIMEOUT, async () => {
  await using tested = await watching(false);
  await tested.apply(false);
  assert.deepEqual(tested.events, ['core', 'apply', 'core serves']);
});
