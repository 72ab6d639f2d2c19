import { COMMAND } from '../../command-name.ts';
import type { z } from 'zod';
import type { ConfigControl, ReloadResult } from '../config-control.ts';
import type { configDiffAnswer, ConfigState, reloadAnswer } from './answers.ts';

/** Returns the answer to a reload. @param config after the reload. */
export function reloadAnswerOf(
  result: ReloadResult,
  config: Pick<ConfigControl, 'state'>,
): z.output<typeof reloadAnswer> {
  return {
    outcome: result.outcome,
    message: messageOf(result, config.state),
    changes: result.outcome === 'applied' ? [...result.lines] : [],
    problems: result.outcome === 'rejected' ? result.reason.split('\n') : [],
    config: config.state,
  };
}

function messageOf({ outcome }: ReloadResult, { file, loadedAt, atRestart }: ConfigState): string {
  const later = atRestart.length === 0 ? '' : ` Settings that take effect at the next start: ${atRestart.length}.`;
  switch (outcome) {
    case 'applied':
      return `${file} is applied.${later}`;
    case 'unchanged':
      // The gateway may have noticed the change before the command came.
      return atRestart.length === 0
        ? `${file} runs as it is, loaded at ${loadedAt}.`
        : `${file} has no change that can be applied now.${later}`;
    case 'rejected':
      return `${file} is rejected; the running config stays. Correct the file, then: ${COMMAND} reload`;
  }
}

/** Returns how the files on disk differ from the running config. */
export async function diffAnswerOf(config: ConfigControl): Promise<z.output<typeof configDiffAnswer>> {
  const difference = await config.difference();
  const changes = 'lines' in difference ? [...difference.lines] : [];
  const problems = 'problem' in difference ? difference.problem.split('\n') : [];
  return { isDifferent: changes.length > 0 || problems.length > 0, changes, problems, config: config.state };
}
