// an event is gone when its time has come.
import assert from 'node:assert/strict'
import { connect, leave, now, patience, pause, person, refused, stored } from './support.mjs'

const alice = person()
const relay = await connect()
const end = now() + 8
const brief = alice.note('brief', [['expiration', `${end}`]])
assert.equal(await relay.publish(brief), '')
assert.deepEqual(await stored(relay, { ids: [brief.id] }), [brief.id])
const limit = Date.now() + patience
while ((await stored(relay, { ids: [brief.id] })).length > 0) {
  assert(Date.now() < limit, 'it does not expire')
  await pause(200)
}
assert(now() >= end, 'not before its time')
await refused(relay, alice.note('past', [['expiration', `${now() - 10}`]]), 'invalid: expired')
leave()
