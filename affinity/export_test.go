package affinity

// Kill ends the resolver as kill -9 ends its process: without a word to the store.
func (r *Resolver) Kill() {
	r.closed.Store(true)
	r.stop()
	r.wait.Wait()
	r.moves.close()
	r.strain.Close()
	r.closing.Do(func() {})
}

// Changed is what a store calls.
func (r *Resolver) Changed(room string) { r.changed(room) }
