import { GatewayError } from '../../errors.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { itemDigest } from '../exchange/external-decisions.ts';
import type { Owner } from '../front/front.ts';
import type { ModernRequest } from './modern-request.ts';

/**
 * Passes a request on to the process of its connection, parked call or task. Returns undefined if the process did not get it.
 *
 * @throws {GatewayError} `too-large` if it cannot be passed on.
 */
export async function passOn(modernRequest: ModernRequest, owner: Owner): Promise<Answer | undefined> {
  const { passedOn, sink, allowedItem: item } = modernRequest;
  const caller = item === undefined ? modernRequest.caller : { ...modernRequest.caller, allowedItem: itemDigest(item) };
  const { promise, resolve, reject } = Promise.withResolvers<Answer | undefined>();
  const onUnreachable = (error?: GatewayError) => (error === undefined ? resolve(undefined) : reject(error));
  const onAnswer = (answer: Answer, isRecorded = false) => {
    modernRequest.isAnsweredElsewhere = isRecorded;
    resolve(answer);
  };
  const back = { receivedMs: sink.receivedMs, send: (text: string) => sink.send(text), answer: onAnswer };
  modernRequest.bindElsewhere(owner.handleModernRequest(passedOn, caller, back, onUnreachable));
  return await promise;
}

/** Passes a request on to the only process that can answer it. @throws {GatewayError} `store-unavailable` if the process did not get it. */
export async function passOnOrFail(modernRequest: ModernRequest, owner: Owner): Promise<Answer> {
  const answer = await passOn(modernRequest, owner);
  if (answer === undefined) throw unreachable();
  return answer;
}

/** Returns the failure of a request that no process could answer. */
export function unreachable(): GatewayError {
  const message = 'the process that has this cannot be reached; send the request again';
  return new GatewayError('store-unavailable', { message });
}
