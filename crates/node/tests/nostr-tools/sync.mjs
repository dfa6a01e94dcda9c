// NIP-77: a client and the relay find out what each of them lacks.
import assert from 'node:assert/strict'
import { nip77 } from 'nostr-tools'
import { connect, leave, person, stored } from './support.mjs'

const alice = person()
const relay = await connect()
const notes = Array.from({ length: 120 }, (_, n) => alice.note(`${n}`))
const ids = events => events.map(event => event.id).sort()
// Forty that both have, forty of the relay's, forty of the client's.
const [theirs, ours] = [notes.slice(0, 80), notes.slice(40)]
await Promise.all(theirs.map(event => relay.publish(event)))
const storage = new nip77.NegentropyStorageVector()
for (const event of ours) storage.insert(event.created_at, event.id)
storage.seal()

const [have, need] = [[], []]
const reason = await new Promise((resolve, reject) => {
  const params = { onhave: id => have.push(id), onneed: id => need.push(id), onclose: resolve }
  new nip77.NegentropySync(relay, storage, { authors: [alice.key] }, params).start().catch(reject)
})
assert.equal(reason, undefined)
assert.deepEqual(need.sort(), ids(notes.slice(0, 40)))
assert.deepEqual(have.sort(), ids(notes.slice(80)))

const missing = ours.filter(event => have.includes(event.id))
await Promise.all(missing.map(event => relay.publish(event)))
assert.deepEqual((await stored(relay, { authors: [alice.key] })).sort(), ids(notes))
leave()
