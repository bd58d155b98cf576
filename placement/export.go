package placement

import (
	"errors"
	"fmt"

	"github.com/roost-cluster/roost/lease"
)

// exportFormat is the format number of an [Export]. It only changes if older readers would misunderstand the
// new format.
const exportFormat = 1

// Limits on the nodes of a document and on its strategy's name, because a document can come from an untrusted
// source.
const (
	maxImportNodes = 65536
	maxImportName  = 256
)

// Export is a [Table] as a document that you can encode as JSON, store, compare and import again. An agent
// serves such a document, with additional fields, at /v1/partitions.
type Export struct {
	Format     int            `json:"format"`  // exportFormat
	Version    uint64         `json:"version"` // chosen by the caller; an agent uses the version of its snapshot
	Digest     Digest         `json:"digest"`
	Partitions int            `json:"partitions"`
	Strategy   string         `json:"strategy"` // name of the strategy
	Nodes      []Node         `json:"nodes"`    // the candidates, sorted by id
	Owners     []lease.NodeID `json:"owners"`   // by partition; "" = no owner
}

// Export returns t as a document. The caller chooses the version, because a table has no version. The
// document shares the labels of nodes with t.
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

// Table returns the table that e describes, with the same digest. Table checks e completely, because e can
// come from an untrusted source, and fails on the first contradiction. If the strategy is not built in, Rank
// of the table only returns the owner.
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
		return nil, fmt.Errorf("its digest is %s, but the digest of its content is %s: it was changed or truncated after it was written",
			e.Digest, t.digest)
	}
	return t, nil
}

func (e Export) check() error {
	switch {
	case e.Format != exportFormat:
		return fmt.Errorf("its format is %d, but this program reads format %d: it is not a table, or another version of roost wrote it",
			e.Format, exportFormat)
	case e.Partitions < 1 || e.Partitions > MaxPartitions:
		return fmt.Errorf("%d partitions; there must be 1 to %d", e.Partitions, MaxPartitions)
	case len(e.Owners) != e.Partitions:
		return fmt.Errorf("it has %d owners for %d partitions", len(e.Owners), e.Partitions)
	case len(e.Nodes) > maxImportNodes:
		return fmt.Errorf("%d nodes, at most %d", len(e.Nodes), maxImportNodes)
	case e.Strategy == "":
		return errors.New("the strategy has no name")
	case len(e.Strategy) > maxImportName:
		return fmt.Errorf("the strategy's name has %d bytes, at most %d", len(e.Strategy), maxImportName)
	}
	return nil
}

// indexes returns the owners as indexes into nodes, or nil if there are no nodes.
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
			return nil, fmt.Errorf("partition %d belongs to %.80q, which is not among the %d nodes with a weight", p, id, len(nodes))
		case id != "":
			return nil, fmt.Errorf("partition %d belongs to %.80q, but there are no nodes with a weight", p, id)
		}
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	return owners, nil
}

// imported is the strategy of an imported table, which cannot assign partitions. It is not equal to the
// strategy that it names, so Compute never derives a table from imported owners.
type imported struct {
	name  string
	known Strategy // used for ranking; nil if the strategy is not built in
}

func importedStrategy(name string) Strategy {
	s, err := ParseStrategy(name)
	if err != nil || s.Name() != name {
		return imported{name: name}
	}
	if Remembers(s) {
		return s // Compute never derives tables of strategies with a Memory
	}
	if z, ok := s.(zoned); ok {
		return zoned{imported{z.Strategy.Name(), z.Strategy}}
	}
	return imported{name, s}
}

func (i imported) Name() string { return i.name }

func (i imported) Assign([]Node, int) ([]int, error) {
	return nil, errors.New("it only names the strategy of an imported table")
}

func (i imported) Rank(nodes []Node, p Partition, n int) []int {
	if i.known == nil {
		return nil
	}
	return i.known.Rank(nodes, p, n)
}
