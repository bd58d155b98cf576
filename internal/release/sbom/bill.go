package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// The fields of SPDX 2.3 that the bill uses: https://spdx.github.io/spdx-spec/v2.3/
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		DataLicense   string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}

	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}

	spdxPackage struct {
		ID            string        `json:"SPDXID"`
		Name          string        `json:"name"`
		Version       string        `json:"versionInfo"`
		File          string        `json:"packageFileName,omitempty"`
		Purpose       string        `json:"primaryPackagePurpose"`
		Location      string        `json:"downloadLocation"`
		FilesAnalyzed bool          `json:"filesAnalyzed"`
		Checksums     []checksum    `json:"checksums,omitempty"`
		SourceInfo    string        `json:"sourceInfo,omitempty"`
		Concluded     string        `json:"licenseConcluded"`
		Declared      string        `json:"licenseDeclared"`
		Copyright     string        `json:"copyrightText"`
		References    []externalRef `json:"externalRefs"`
	}

	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}

	externalRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}

	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	module    = "github.com/roost-cluster/roost"
	documents = "SPDXRef-DOCUMENT"
	unknown   = "NOASSERTION"
)

// bill collects the archives of a release and the modules in their binaries.
type bill struct {
	version, commit string
	time            time.Time
	archives        []spdxPackage
	modules         map[string]spdxPackage // by id; most are in all binaries
	relationships   []relationship
}

func newBill(version, commit string, at time.Time) *bill {
	return &bill{version: version, commit: commit, time: at, modules: make(map[string]spdxPackage)}
}

// addArchive adds the archive that has the files of a folder.
func (b *bill) addArchive(archives, folder string) error {
	file := filepath.Base(folder) + ".tar.gz"
	packed, err := os.ReadFile(filepath.Join(archives, file)) //nolint:gosec // the script names the folder
	if err != nil {
		return err
	}
	texts, err := licenseTexts(folder)
	if err != nil {
		return err
	}
	binaries, _ := filepath.Glob(filepath.Join(folder, "roost*"))
	if len(binaries) != 1 {
		return fmt.Errorf("contains the binaries %q, want one", binaries)
	}
	info, err := buildinfo.ReadFile(binaries[0])
	if err != nil {
		return err
	}

	p, err := newPackage("archive "+file, module, b.version, texts[module])
	if err != nil {
		return err
	}
	sum := sha256.Sum256(packed)
	p.File, p.Purpose, p.Checksums = file, "APPLICATION", []checksum{{"SHA256", hex.EncodeToString(sum[:])}}
	p.SourceInfo = "git commit " + b.commit
	b.archives = append(b.archives, p)
	b.relate(documents, "DESCRIBES", p.ID)

	for _, m := range contained(info) {
		mod, err := newPackage("module "+m.Path+" "+m.Version, m.Path, m.Version, texts[m.Path])
		if err != nil {
			return err
		}
		if m.Sum != "" {
			// Not a checksum of SPDX, because it is not the hash of a file: go.sum has the hash of a list of hashes.
			mod.SourceInfo = "go.sum " + m.Sum
		}
		b.modules[mod.ID] = mod
		b.relate(p.ID, "CONTAINS", mod.ID)
	}
	return nil
}

// contained returns the modules in a binary, and the standard library.
func contained(info *debug.BuildInfo) []debug.Module {
	in := []debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}} // the name in the database of vulnerabilities
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		in = append(in, *m)
	}
	return in
}

func newPackage(key, path, version, licenseText string) (spdxPackage, error) {
	expression, err := license(licenseText)
	if err != nil {
		return spdxPackage{}, fmt.Errorf("%s %s: %w", path, version, err)
	}
	return spdxPackage{
		ID: "SPDXRef-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(key, "-"), Name: path, Version: version,
		Purpose: "LIBRARY", Location: unknown, Concluded: unknown, Declared: expression, Copyright: unknown,
		References: []externalRef{{"PACKAGE-MANAGER", "purl", purl(path, version)}},
	}, nil
}

// purl returns the package URL of a module: https://github.com/package-url/purl-spec
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}

func (b *bill) relate(from, how, to string) {
	b.relationships = append(b.relationships, relationship{from, how, to})
}

func (b *bill) document() document {
	modules := slices.SortedFunc(maps.Values(b.modules), func(x, y spdxPackage) int { return cmp.Compare(x.ID, y.ID) })
	return document{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documents, Name: "roost-" + b.version,
		Namespace: "https://" + module + "/spdx/" + b.version + "/" + b.commit, // unique, and not an address
		Creation: creation{
			Created:  b.time.UTC().Format("2006-01-02T15:04:05Z"),
			Creators: []string{"Tool: " + module + "/internal/release/sbom"},
		},
		Packages:      append(slices.Clone(b.archives), modules...),
		Relationships: b.relationships,
	}
}
