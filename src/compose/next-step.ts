import { COMMAND } from '../command-name.ts';
import type { UpstreamStatus } from '../operator/admin/answers.ts';
import { START_SETTING } from '../upstream/link/start-timeout.ts';
import { isExhaustion } from '../upstream/stdio/spawn-failure.ts';

/** The facts about an upstream that decide what an operator can do. */
export interface UpstreamFacts extends Pick<UpstreamStatus, 'id' | 'transport' | 'state' | 'reason'> {
  readonly isDisabled: boolean;
  /** True if its entry in the config file cannot be used. */
  readonly isMisconfigured: boolean;
}

/** Matches the reasons of `upstream/stdio/spawn-failure.ts`. */
const NO_PROGRAM = /^(?:for clients of the \w+ era: )?(?:the working directory of )?command "/;

/** Matches the reasons of `credentials/credential-cache.ts`. */
const NO_CREDENTIALS = /the gateway has no credentials for upstream "/;

/** Returns what an operator can do about the state of an upstream, as a sentence; undefined if there is nothing to do. */
export function nextStepFor({ id, transport, state, reason = '', ...is }: UpstreamFacts): string | undefined {
  const restart = `${COMMAND} restart ${id}`;
  if (is.isDisabled) return `Put it into service again with: ${restart}`;
  if (is.isMisconfigured) return 'Correct its entry in the config file, then reload the config or restart the gateway.';
  if (state === 'degraded')
    return `It is ready again with the next start or listing that succeeds. To start it now: ${restart}`;
  if (state === 'needs-authorization') {
    const cause =
      'Its server, or the authorization server, does not accept the credentials of the gateway, or gets none.';
    return `${cause} Correct or add "headers" or "auth" in its entry and reload the config. It is tried again by itself; to try now: ${restart}`;
  }
  if (state !== 'failed') return undefined;
  const isLate = reason.includes(START_SETTING);
  if (transport === 'stdio' && isLate) {
    return (
      `If its command downloads packages first (npx and uvx do), run "${COMMAND} prefetch" or raise timeouts.start. ` +
      `If not, read what it printed with "${COMMAND} logs". Then: ${restart}`
    );
  }
  if (transport === 'stdio' && isExhaustion(reason)) {
    return `Give the gateway more of what its reason names. It is tried again by itself; to try now: ${restart}`;
  }
  if (transport === 'stdio' && NO_PROGRAM.test(reason)) {
    const what = reason.includes('working directory')
      ? '"cwd" in its entry'
      : '"command" in its entry, or install the program';
    return `Correct ${what}. It is tried again when a client needs it; to try now: ${restart}`;
  }
  if (transport === 'stdio') {
    const isLoop = reason.includes('crash loop');
    const cause = isLoop ? 'It ends soon after each start.' : 'Its program did not start or did not speak MCP.';
    return `${cause} Read what it printed with "${COMMAND} logs", correct its command or environment, then: ${restart}`;
  }
  if (NO_CREDENTIALS.test(reason)) {
    return `Check "auth" in its entry, and that the authorization server answers from this machine. It is tried again by itself; to try now: ${restart}`;
  }
  return `Check its URL and headers, and that it answers from this machine. It is tried again by itself; to try now: ${restart}`;
}
