package fakeengine

// freeQueue orders the blocks that no request uses, least recently used first. It is a ring of indices
// through the null block 0, which is never handed out and so serves as the sentinel.
type freeQueue struct {
	next, prev []int32
	size       int
}

// newFreeQueue returns a queue of the blocks 1 to n-1 in that order.
func newFreeQueue(n int) *freeQueue {
	q := &freeQueue{next: make([]int32, n), prev: make([]int32, n)}
	for id := int32(1); id < int32(n); id++ {
		q.push(id)
	}
	return q
}

// push appends a block as the most recently used.
func (q *freeQueue) push(id int32) {
	last := q.prev[0]
	q.next[last], q.prev[id] = id, last
	q.next[id], q.prev[0] = 0, id
	q.size++
}

// pop takes the least recently used block. The queue must not be empty.
func (q *freeQueue) pop() int32 {
	id := q.next[0]
	q.remove(id)
	return id
}

// remove takes a block out of the middle. The block must be in the queue.
func (q *freeQueue) remove(id int32) {
	q.next[q.prev[id]] = q.next[id]
	q.prev[q.next[id]] = q.prev[id]
	q.size--
}
