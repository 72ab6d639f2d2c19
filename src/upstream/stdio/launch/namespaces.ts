import { execFile } from 'node:child_process';
import { isFulfilled } from '../../../thrown.ts';
import { promisify } from 'node:util';

const run = promisify(execFile);

const PROBE = ['--unshare-user', '--disable-userns', '--ro-bind', '/', '/', '--', '/bin/true'];
const PROBE_MS = 10_000;

const probes = new Map<string, Promise<boolean>>();

/**
 * Resolves with whether a bubblewrap can forbid user namespaces in its sandboxes. It must know the option (0.8), and the system must let it
 * change the setting.
 */
export function canDisableNamespaces(bwrap: string): Promise<boolean> {
  let probe = probes.get(bwrap);
  if (probe === undefined) {
    probe = isFulfilled(run(bwrap, PROBE, { timeout: PROBE_MS }));
    probes.set(bwrap, probe);
  }
  return probe;
}
