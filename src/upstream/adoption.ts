import { settlesWithin } from '../deadline.ts';
import type { Link, LinkPlace, LinkUser } from './link/link.ts';
import type { UpstreamLinks } from './upstream-links.ts';

/** The time that a client waits for the end of a listing to get its process, before it gets a new process. */
const ADOPTION_WAIT_MS = 1_000;

/**
 * Gives a discovery connection, open or opening, to a client. Returns undefined if there is none.
 *
 * @param from key of the discovery connection.
 * @param place of the client's connection.
 * @param openOther opens a connection for the client if that one cannot serve it.
 */
export function adopt<Context, User extends LinkUser>(
  links: UpstreamLinks<Context, User>,
  from: string,
  place: LinkPlace,
  principal: string,
  openOther: () => Promise<Link<Context, User>>,
): Promise<Link<Context, User>> | undefined {
  const opening = links.find(from);
  if (opening === undefined) return undefined;
  links.removeKey(from);
  const adopted = opening.then(async (link) => {
    // A call of this client could change the lists while they are read, and they are for other clients too.
    const readings = links.recordOf(link)?.readings ?? new Set();
    const isFree = readings.size === 0 || (await settlesWithin(Promise.allSettled(readings), ADOPTION_WAIT_MS));
    const record = links.recordOf(link);
    const isExpected = link.place.key === from && record !== undefined;
    if (isFree && isExpected) {
      link.place = place;
      record.isClaimed = true;
      record.permit.assign(principal);
      return link;
    }
    // A link that reads lists for long may serve the next client. Others have another era than expected, or have closed.
    if (isExpected && links.find(from) === undefined) links.setOpening(from, opening);
    // Another one has its key, so it closes when its lists are read.
    else if (isExpected) record.isReleased = true;
    links.removeKey(place.key, adopted);
    return openOther();
  });
  links.setOpening(place.key, adopted);
  return adopted;
}
