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
	extensions       = []string{".json", ".jsonl", ".ndjson", ".pb", ".otlp", ".profile"}
	packedExtensions = []string{".gz", ".zst"}
)

// inputFile is one file to read.
type inputFile struct {
	name string
	size int64 // 0 if unknown
	err  error // why it cannot be read, if that is known already
}

// listFiles resolves files, folders, globs and "-" to files, in the order of the
// inputs and by name inside a folder or glob, from which only regular files are
// taken. A file that is reached twice stays at its first place. What cannot be
// found has a place too, with the reason.
func listFiles(inputs []string) []inputFile {
	var files []inputFile
	seen := make(map[string]bool)
	add := func(name string, info fs.FileInfo, err error) {
		if err != nil {
			if !seen[name] {
				seen[name] = true
				files = append(files, inputFile{name: name, err: withoutPath(err)})
			}
			return
		}
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
			matches = slices.DeleteFunc(matches, func(name string) bool {
				info, err := os.Stat(name)
				return err == nil && !info.IsDir() && !info.Mode().IsRegular()
			})
			if err != nil {
				err = fmt.Errorf("bad pattern: %w", err)
			} else if len(matches) == 0 {
				err = errors.New("no file matches this pattern")
			}
			if err != nil {
				add(input, nil, err)
				continue
			}
			names = matches
		}
		for _, name := range names {
			walk(name, add)
		}
	}
	return files
}

// walk adds a file, or the trace files of a folder.
func walk(name string, add func(string, fs.FileInfo, error)) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		add(name, info, err)
		return
	}
	found := false
	visit := func(path string, _ fs.DirEntry, err error) error {
		if err != nil { // a folder that cannot be listed
			found = true
			add(path, nil, err)
			return nil
		}
		if !isTraceFile(path) {
			return nil
		}
		// Links are followed, unlike by the entry. A pipe that nobody writes to
		// would hold up all other files.
		info, err := os.Stat(path)
		if err != nil || info.Mode().IsRegular() {
			found = true
			add(path, info, err)
		}
		return nil
	}
	_ = filepath.WalkDir(name, visit) // visit returns no error
	if !found {
		add(name, nil, fmt.Errorf("no trace files in this folder (looked for *%s, plain or with %s)",
			strings.Join(extensions, ", *"), strings.Join(packedExtensions, " or ")))
	}
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
	if f.err != nil {
		return nil, f.err
	}
	if f.name == stdinName {
		if stdin == nil {
			return nil, errors.New("there is no standard input")
		}
		return io.NopCloser(stdin), nil
	}
	file, err := os.Open(f.name)
	if err != nil {
		return nil, withoutPath(err)
	}
	return file, nil
}
