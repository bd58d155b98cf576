package placement

import (
	"errors"
	"fmt"

	"github.com/roost-cluster/roost/lease"
)

// exportFormat is the format number of an [Export]. It changes only if readers of
// the last one would misunderstand the next.
const exportFormat = 1

// maxImport bounds the nodes of a table that is read, and the bytes of its
// strategy's name: it may come from anywhere.
const (
	maxImportNodes = 65536
	maxImportName  = 256
)

// Export is a [Table] as a document, to be written as JSON, kept, compared and
// read again. What /v1/partitions of an agent answers is one, with more fields.
type Export struct {
	Format     int            `json:"format"`  // exportFormat
	Version    uint64         `json:"version"` // whatever its writer counts by; of an agent, that of its snapshot
	Digest     Digest         `json:"digest"`
	Partitions int            `json:"partitions"`
	Strategy   string         `json:"strategy"` // its name
	Nodes      []Node         `json:"nodes"`    // the candidates, sorted by id
	Owners     []lease.NodeID `json:"owners"`   // by partition; "" = nobody
}

// Export returns t as a document. A table has no version of its own: the caller
// states one. The labels of nodes are shared with t.
func (t *Table) Export(version uint64) Export {
	e := Export{
		Format: exportFormat, Version: version, Digest: t.Digest(), Partitions: t.Partitions(),
		Nodes: append([]Node{}, t.Nodes()...), Owners: make([]lease.NodeID, t.Partitions()),
	}
	if e.Partitions > 0 {
		e.Strategy = t.name
	}
	for p := range e.Owners {
		e.Owners[p], _ = t.Owner(Partition(p))
	}
	return e
}

// Table returns the table that e describes, with the same digest. e may come from
// anywhere: whatever does not fit together is an error that says what. The
// strategy may be one that this program does not have: owners are known all the
// same, and Rank tells the owner alone.
func (e Export) Table() (*Table, error) {
	t, err := e.table()
	if err != nil {
		return nil, fmt.Errorf("placement: import: %w", err)
	}
	return t, nil
}

func (e Export) table() (*Table, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	nodes, err := candidates(e.Nodes)
	if err != nil {
		return nil, err
	}
	t := &Table{nodes: nodes, partitions: e.Partitions, strategy: importedStrategy(e.Strategy), name: e.Strategy}
	if t.owners, err = e.indexes(nodes); err != nil {
		return nil, err
	}
	t.digest = digest(t)
	if t.digest != e.Digest {
		return nil, fmt.Errorf("its digest is %s, but its content makes %s: it was changed after it was written, or only in part", e.Digest, t.digest)
	}
	return t, nil
}

func (e Export) check() error {
	switch {
	case e.Format != exportFormat:
		return fmt.Errorf("it is of format %d, and this program reads format %d: it is no table, or of another version of roost", e.Format, exportFormat)
	case e.Partitions < 1 || e.Partitions > MaxPartitions:
		return fmt.Errorf("%d partitions; there must be 1 to %d", e.Partitions, MaxPartitions)
	case len(e.Owners) != e.Partitions:
		return fmt.Errorf("%d owners of %d partitions", len(e.Owners), e.Partitions)
	case len(e.Nodes) > maxImportNodes:
		return fmt.Errorf("%d nodes, at most %d", len(e.Nodes), maxImportNodes)
	case e.Strategy == "":
		return errors.New("the strategy has no name")
	case len(e.Strategy) > maxImportName:
		return fmt.Errorf("the strategy's name has %d bytes, at most %d", len(e.Strategy), maxImportName)
	}
	return nil
}

// indexes returns the owners as indexes into nodes, or nil if nobody can own
// anything.
func (e Export) indexes(nodes []Node) ([]int32, error) {
	index := make(map[lease.NodeID]int32, len(nodes))
	for i, n := range nodes {
		index[n.ID] = int32(i)
	}
	owners := make([]int32, len(e.Owners))
	for p, id := range e.Owners {
		i, ok := index[id]
		switch {
		case ok:
			owners[p] = i
		case len(nodes) > 0:
			return nil, fmt.Errorf("partition %d belongs to %.80q, which is none of the %d nodes with a weight", p, id, len(nodes))
		case id != "":
			return nil, fmt.Errorf("partition %d belongs to %.80q, and there are no nodes with a weight", p, id)
		}
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	return owners, nil
}

// imported is the strategy of a table that was read, by name. It does not assign,
// and is not equal to the strategy that it names: owners that somebody wrote down
// must not be the Base of others.
type imported struct {
	name  string
	known Strategy // to rank by; nil if this program does not have it
}

func importedStrategy(name string) Strategy {
	s, err := ParseStrategy(name)
	if err != nil || s.Name() != name {
		return imported{name: name}
	}
	if Remembers(s) {
		return s // it goes by a Memory, and never by a Base
	}
	if z, ok := s.(zoned); ok {
		return zoned{imported{z.Strategy.Name(), z.Strategy}}
	}
	return imported{name, s}
}

func (i imported) Name() string { return i.name }

func (i imported) Assign([]Node, int) ([]int, error) {
	return nil, errors.New("it only names the strategy of a table that was read")
}

func (i imported) Rank(nodes []Node, p Partition, n int) []int {
	if i.known == nil {
		return nil
	}
	return i.known.Rank(nodes, p, n)
}
