package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FileError says what is wrong with one input as a whole.
type FileError struct {
	Name string // as the user named it; "-" for standard input
	Err  error
}

// Error returns the name and the reason in one line.
func (e *FileError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

// stdinName is how standard input is named.
const stdinName = "-"

// extensions are the names of files that are read from a folder, each also with
// one of packedExtensions behind it.
var (
	extensions       = []string{".json", ".jsonl", ".ndjson", ".pb", ".otlp"}
	packedExtensions = []string{".gz", ".zst"}
)

// inputFile is one file to read.
type inputFile struct {
	name string
	size int64 // 0 if unknown
}

// listFiles resolves files, folders, globs and "-" to files, in the order of the
// inputs and by name inside a folder or glob. A file that is reached twice
// stays at its first place.
func listFiles(inputs []string) ([]inputFile, error) {
	var files []inputFile
	seen := make(map[string]bool)
	add := func(name string, info fs.FileInfo) {
		id, err := filepath.Abs(name)
		if err != nil {
			id = name
		}
		if real, err := filepath.EvalSymlinks(id); err == nil {
			id = real
		}
		if seen[id] {
			return
		}
		seen[id] = true
		file := inputFile{name: name}
		if info.Mode().IsRegular() {
			file.size = info.Size()
		}
		files = append(files, file)
	}
	for _, input := range inputs {
		if input == stdinName {
			if !seen[stdinName] {
				seen[stdinName] = true
				files = append(files, inputFile{name: stdinName})
			}
			continue
		}
		names := []string{input}
		if _, err := os.Stat(input); errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(input, "*?[") {
			matches, err := filepath.Glob(input)
			if err != nil {
				return nil, &FileError{input, fmt.Errorf("bad pattern: %w", err)}
			}
			if len(matches) == 0 {
				return nil, &FileError{input, errors.New("no file matches this pattern")}
			}
			names = matches
		}
		for _, name := range names {
			if err := walk(name, add); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

// walk adds a file, or the trace files of a folder.
func walk(name string, add func(string, fs.FileInfo)) error {
	info, err := os.Stat(name)
	if err != nil {
		return &FileError{name, withoutPath(err)}
	}
	if !info.IsDir() {
		add(name, info)
		return nil
	}
	found := false
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return &FileError{path, withoutPath(err)}
		}
		if !isTraceFile(path) {
			return nil
		}
		info, err := os.Stat(path) // follows links, unlike entry
		if err != nil {
			return &FileError{path, withoutPath(err)}
		}
		if !info.IsDir() {
			found = true
			add(path, info)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !found {
		return &FileError{name, fmt.Errorf("no trace files in this folder (looked for *%s, plain or with %s)",
			strings.Join(extensions, ", *"), strings.Join(packedExtensions, " or "))}
	}
	return nil
}

func isTraceFile(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	for _, ext := range packedExtensions {
		name = strings.TrimSuffix(name, ext)
	}
	return slices.Contains(extensions, filepath.Ext(name))
}

// withoutPath drops the file name that errors of package os carry, because it
// stands in front already.
func withoutPath(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// open opens a file for reading.
func (f inputFile) open(stdin io.Reader) (io.ReadCloser, error) {
	if f.name == stdinName {
		return io.NopCloser(stdin), nil
	}
	file, err := os.Open(f.name)
	if err != nil {
		return nil, withoutPath(err)
	}
	return file, nil
}
