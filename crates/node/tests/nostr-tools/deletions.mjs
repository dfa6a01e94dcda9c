// D-3, D-4, D-6: deletions by id and by address hold before and after their targets.
import assert from 'node:assert/strict'
import { connect, leave, person, refused, stored } from './support.mjs'

const [alice, stranger] = [person(), person()]
const relay = await connect()
const post = alice.note('post')
const page = alice.sign({ kind: 30023, content: 'page', tags: [['d', 'slug']] })
const late = alice.note('late')
for (const event of [post, page]) assert.equal(await relay.publish(event), '')

const remove = (who, ...tags) => who.sign({ kind: 5, tags })
assert.equal(await relay.publish(remove(stranger, ['e', post.id])), '')
assert.equal((await stored(relay, { kinds: [1, 30023] })).length, 2, 'a stranger deletes nothing')
const requests = [
  remove(alice, ['e', post.id], ['k', '1']),
  remove(alice, ['a', `30023:${alice.key}:slug`]),
  remove(alice, ['e', late.id]),
]
for (const request of requests) assert.equal(await relay.publish(request), '')
assert.deepEqual(await stored(relay, { kinds: [1, 30023] }), [])
for (const event of [post, page, late]) await refused(relay, event, 'blocked: deleted by its author')
assert.equal((await stored(relay, { kinds: [5], authors: [alice.key] })).length, 3, 'the requests are there (D-1)')
leave()
