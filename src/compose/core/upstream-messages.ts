import type { ConnectionHolder } from '../../gateway/exchange/connection-holder.ts';
import { HiddenLinks } from '../../gateway/connections/hidden-links.ts';
import { SubscriptionReturns } from '../../gateway/connections/stored-subscriptions.ts';
import { ResourceCache } from '../../gateway/forward/resource-cache.ts';
import { TaskIds } from '../../gateway/handles/task-ids.ts';
import { ByteBounds } from '../../upstream/quota/byte-bounds.ts';
import { TaskMarks } from '../../gateway/handles/task-marks.ts';
import { ChangedLists } from '../../gateway/lists/changes/changed-lists.ts';
import { ListAnnouncer } from '../../gateway/lists/changes/list-announcer.ts';
import { NotificationRouter } from '../../gateway/notification-router.ts';
import { ClientTasks } from '../../gateway/questions/client-tasks.ts';
import { QuestionPolicy } from '../../gateway/questions/question-policy.ts';
import { UrlElicitations } from '../../gateway/questions/url-elicitations.ts';
import { ResourceUpdates } from '../../gateway/resource-updates.ts';
import { UpstreamEventHandler } from '../../gateway/upstream-event-handler.ts';
import { UpstreamFactory } from '../upstream-factory.ts';
import type { ClientParts } from './clients.ts';
import type { ConnectionParts } from './connections.ts';
import type { CommonParts } from './core-parts.ts';

export type UpstreamMessageParts = ReturnType<typeof createUpstreamMessages>;

const OF_UPSTREAM = { each: 'openQuestionBytesPerUpstream', total: 'openQuestionBytes', allowsOne: true } as const;
const OF_PRINCIPAL = { each: 'openQuestionBytesPerPrincipal', total: 'openQuestionBytes', allowsOne: true } as const;

/** Constructs the parts that handle messages of upstreams, and the factory of upstreams, which gives them those messages. */
export function createUpstreamMessages(
  common: CommonParts,
  { offers, links }: ConnectionParts,
  { groups, holders }: ClientParts,
) {
  const { sealer, owners, state, upstreams, metrics, onLimit } = common;
  const taskIds = new TaskIds(sealer, state.tasks, owners.name);
  const marks = new TaskMarks(taskIds);
  const clientTasks = new ClientTasks(onLimit);
  const urlElicitations = new UrlElicitations(onLimit);
  const resourceCache = new ResourceCache(owners.isAlone, onLimit);
  const announcer = new ListAnnouncer(() => (offers.stored.areShared ? offers.stored.flush() : undefined));
  const returns = new SubscriptionReturns((holder) => links.bringBack(holder));
  const hiddenLinks = new HiddenLinks(links);
  const siblingsOf = (holder: ConnectionHolder) => groups.siblingsOf(holder);
  const changedLists = new ChangedLists({
    ...common,
    holders,
    siblingsOf,
    offers,
    announcer,
    onOtherCatalog: (holder) => {
      const { restriction } = holder.catalog;
      for (const [uri, to] of holder.subscriptions) {
        if (restriction?.allowsUpdates(to.upstream, to.uri) !== false) continue;
        // The upstream may be down; the subscription of the client ends anyway.
        links.unsubscribe(holder, uri, to).catch(() => undefined);
        holder.onSubscriptionLost(uri, to.upstream);
      }
      hiddenLinks.releaseOf(holder);
    },
    onCatalogOfUnresolved: (holder) => returns.run(holder),
  });
  const updates = new ResourceUpdates({
    siblingsOf,
    pendingSubscription: (link, uri) => links.pendingSubscription(link, uri),
    onMerged: () => metrics.countMergedNotification(),
  });
  const notifications = new NotificationRouter({
    ...common,
    holders,
    changedLists,
    updates,
    urlElicitations,
    resourceCache,
    marks,
    onDropped: (reason, upstream) => metrics.countDropped(reason, upstream),
  });
  const questionPolicy = new QuestionPolicy({
    ...common,
    rulesOf: (id) => upstreams.getEvenIfLeaving(id)?.config,
  });
  const open = new ByteBounds(OF_UPSTREAM, onLimit);
  const openByPrincipal = new ByteBounds(OF_PRINCIPAL, onLimit);
  const upstreamEvents = new UpstreamEventHandler({
    ...common,
    offers,
    offerStore: state.offers,
    links,
    changedLists,
    notifications,
    resourceCache,
    serverRequests: { marks, clientTasks, policy: questionPolicy, open, openByPrincipal },
  });
  const factory = new UpstreamFactory(common, upstreamEvents);
  return {
    taskIds,
    clientTasks,
    urlElicitations,
    resourceCache,
    announcer,
    changedLists,
    questionPolicy,
    upstreamEvents,
    factory,
  };
}
