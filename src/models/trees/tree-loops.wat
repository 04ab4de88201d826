;; Scores rows with the trees of an ensemble, for tree-loops.ts. Addresses are bytes.
;;
;; A condition of a node is true where the rank of its feature's value, among all thresholds that the ensemble has for this
;; feature, is not above that of its own. So it takes a byte a row, and sixteen rows are compared at once. No branch depends on a
;; row's values: all conditions of a tree are looked at for each row (docs/decisions.md).
(module
  (import "memory" "memory" (memory 1))

  ;; How many of a feature's thresholds lie below each of its values: -1 where the value is NaN. Sorted, with NaN or infinity behind
  ;; them up to a power of two, half of which is `firstHalf` (bytes). Four rows at a time, each `stride` bytes after the one before.
  ;; each T Kind size shift: f32 Floats 4 2, f64 Doubles 8 3
  (func (export "rank{Kind}")
    (param $x i32) (param $stride i32) (param $rows i32) (param $thresholds i32) (param $firstHalf i32) (param $out i32)
    (local $end i32) (local $half i32)
    (local $a {T}) (local $b {T}) (local $c {T}) (local $d {T})
    (local $ata i32) (local $atb i32) (local $atc i32) (local $atd i32)
    (local.set $end (i32.add (local.get $out) (i32.shl (local.get $rows) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.ge_u (local.get $out) (local.get $end)))
        ;; each row: a, b, c, d
        (local.set ${row} ({T}.load (local.get $x)))
        (local.set $x (i32.add (local.get $x) (local.get $stride)))
        ;; end
        ;; each row: a, b, c, d
        (local.set $at{row} (local.get $thresholds))
        ;; end
        (local.set $half (local.get $firstHalf))
        (loop $closer
          ;; each row: a, b, c, d
          (local.set $at{row}
            (select
              (i32.add (local.get $at{row}) (local.get $half))
              (local.get $at{row})
              ({T}.gt
                (local.get ${row})
                ({T}.load (i32.sub (i32.add (local.get $at{row}) (local.get $half)) (i32.const {size}))))))
          ;; end
          (local.set $half (i32.shr_u (local.get $half) (i32.const 1)))
          (br_if $closer (i32.ge_u (local.get $half) (i32.const {size}))))
        ;; each row i: a 0, b 1, c 2, d 3
        (i32.store offset={i * 4} (local.get $out)
          (select
            (i32.const -1)
            (i32.shr_u (i32.sub (local.get $at{row}) (local.get $thresholds)) (i32.const {shift}))
            ({T}.ne (local.get ${row}) (local.get ${row}))))
        ;; end
        (local.set $out (i32.add (local.get $out) (i32.const 16)))
        (br $next))))
  ;; end

  ;; Ranks from `base` on as bytes that gt_s compares: 0 to 255, less 128. NaN counts as `nan` says: -1: below all; 2^30: above all.
  (func (export "rankBytes") (param $ranks i32) (param $rows i32) (param $base i32) (param $nan i32) (param $out i32)
    (local $end i32) (local $first v128) (local $most v128)
    (local.set $first (i32x4.splat (local.get $base)))
    (local.set $most (i32x4.splat (local.get $nan)))
    (local.set $end (i32.add (local.get $out) (local.get $rows)))
    (block $through
      (loop $next
        (br_if $through (i32.ge_u (local.get $out) (local.get $end)))
        (v128.store (local.get $out)
          (v128.xor
            (v128.const i32x4 0x80808080 0x80808080 0x80808080 0x80808080)
            (i8x16.narrow_i16x8_u
              (i16x8.narrow_i32x4_s
                (i32x4.sub (i32x4.min_u (v128.load offset=0 (local.get $ranks)) (local.get $most)) (local.get $first))
                (i32x4.sub (i32x4.min_u (v128.load offset=16 (local.get $ranks)) (local.get $most)) (local.get $first)))
              (i16x8.narrow_i32x4_s
                (i32x4.sub (i32x4.min_u (v128.load offset=32 (local.get $ranks)) (local.get $most)) (local.get $first))
                (i32x4.sub (i32x4.min_u (v128.load offset=48 (local.get $ranks)) (local.get $most)) (local.get $first))))))
        (local.set $ranks (i32.add (local.get $ranks) (i32.const 64)))
        (local.set $out (i32.add (local.get $out) (i32.const 16)))
        (br $next))))

  ;; 0 for each value that is one of the members, 1 for others, `nan` for NaN. Members are laid out as thresholds are, with NaN behind.
  ;; each T Kind size: f32 Floats 4, f64 Doubles 8
  (func (export "member{Kind}")
    (param $x i32) (param $stride i32) (param $rows i32) (param $members i32) (param $firstHalf i32)
    (param $nan i32) (param $out i32)
    (local $end i32) (local $half i32) (local $at i32) (local $value {T})
    (local.set $end (i32.add (local.get $out) (local.get $rows)))
    (block $through
      (loop $next
        (br_if $through (i32.ge_u (local.get $out) (local.get $end)))
        (local.set $value ({T}.load (local.get $x)))
        (local.set $at (local.get $members))
        (local.set $half (local.get $firstHalf))
        (loop $closer
          (local.set $at
            (select
              (i32.add (local.get $at) (local.get $half))
              (local.get $at)
              ({T}.gt
                (local.get $value)
                ({T}.load (i32.sub (i32.add (local.get $at) (local.get $half)) (i32.const {size}))))))
          (local.set $half (i32.shr_u (local.get $half) (i32.const 1)))
          (br_if $closer (i32.ge_u (local.get $half) (i32.const {size}))))
        (i32.store8 (local.get $out)
          (select
            (local.get $nan)
            ({T}.ne (local.get $value) ({T}.load (local.get $at)))
            ({T}.ne (local.get $value) (local.get $value))))
        (local.set $x (i32.add (local.get $x) (local.get $stride)))
        (local.set $out (i32.add (local.get $out) (i32.const 1)))
        (br $next))))
  ;; end

  ;; The leaf of each of 64 rows in a tree of up to 256 leaves: the first one that no false condition rules out.
  ;; Eight leaves are a group, a bit of a byte each; a row's byte is ruled out by all conditions above these leaves.
  (func $leavesByBits (param $groups i32) (param $entry i32) (param $row i32) (param $exits i32)
    (local $end i32) (local $column i32) (local $threshold v128) (local $mask v128) (local $base v128)
    (local $low v128) (local $high v128) (local $nibble v128)
    (local $open0 v128) (local $open1 v128) (local $open2 v128) (local $open3 v128)
    (local $exit0 v128) (local $exit1 v128) (local $exit2 v128) (local $exit3 v128)
    (local.set $nibble (v128.const i32x4 0x0f0f0f0f 0x0f0f0f0f 0x0f0f0f0f 0x0f0f0f0f))
    (local.set $low (v128.const i8x16 255 0 1 0 2 0 1 0 3 0 1 0 2 0 1 0)) ;; the lowest bit of half a byte
    (local.set $high (v128.const i8x16 255 4 5 4 6 4 5 4 7 4 5 4 6 4 5 4))
    ;; each i: 0, 1, 2, 3
    (local.set $exit{i} (v128.const i32x4 -1 -1 -1 -1))
    ;; end
    (loop $nextGroup
      (local.set $end (i32.load (local.get $entry)))
      (local.set $entry (i32.add (local.get $entry) (i32.const 8)))
      (local.set $end (i32.add (local.get $entry) (local.get $end)))
      ;; each i: 0, 1, 2, 3
      (local.set $open{i} (v128.const i32x4 -1 -1 -1 -1))
      ;; end
      (block $through
        (loop $nextEntry
          (br_if $through (i32.eq (local.get $entry) (local.get $end)))
          (local.set $column (i32.add (i32.load (local.get $entry)) (local.get $row)))
          (local.set $threshold (v128.load8_splat offset=4 (local.get $entry)))
          (local.set $mask (v128.load8_splat offset=5 (local.get $entry)))
          ;; each i: 0, 1, 2, 3
          (local.set $open{i}
            (v128.andnot
              (local.get $open{i})
              (v128.and
                (i8x16.gt_s (v128.load offset={i * 16} (local.get $column)) (local.get $threshold))
                (local.get $mask))))
          ;; end
          (local.set $entry (i32.add (local.get $entry) (i32.const 8)))
          (br $nextEntry)))
      ;; each i: 0, 1, 2, 3
      (local.set $exit{i}
        (i8x16.min_u
          (local.get $exit{i})
          (i8x16.add_sat_u
            (local.get $base)
            (i8x16.min_u
              (i8x16.swizzle (local.get $low) (v128.and (local.get $open{i}) (local.get $nibble)))
              (i8x16.swizzle
                (local.get $high)
                (v128.and (i16x8.shr_u (local.get $open{i}) (i32.const 4)) (local.get $nibble)))))))
      ;; end
      (local.set $base
        (i8x16.add (local.get $base) (v128.const i32x4 0x08080808 0x08080808 0x08080808 0x08080808)))
      (local.set $groups (i32.sub (local.get $groups) (i32.const 1)))
      (br_if $nextGroup (local.get $groups)))
    ;; each i: 0, 1, 2, 3
    ;; each part inner outer: 0 low low, 1 low high, 2 high low, 3 high high
    (v128.store offset={i * 64 + part * 16} (local.get $exits)
      (i32x4.extend_{outer}_i16x8_u (i16x8.extend_{inner}_i8x16_u (local.get $exit{i}))))
    ;; end
    ;; end
  )

  ;; The same in a tree of any size, from node to node, eight rows at a time. A node: column, threshold, where its children lie (the true
  ;; one first), its leaf. A leaf's children are itself.
  (func $leavesByWalking (param $depth i32) (param $root i32) (param $row i32) (param $exits i32)
    (local $end i32) (local $left i32)
    (local $at0 i32) (local $at1 i32) (local $at2 i32) (local $at3 i32) (local $at4 i32) (local $at5 i32) (local $at6 i32) (local $at7 i32)
    (local.set $end (i32.add (local.get $exits) (i32.const 256)))
    (loop $nextRows
      ;; each i: 0, 1, 2, 3, 4, 5, 6, 7
      (local.set $at{i} (local.get $root))
      ;; end
      (local.set $left (local.get $depth))
      (block $through
        (loop $deeper
          (br_if $through (i32.eqz (local.get $left)))
          ;; each i: 0, 1, 2, 3, 4, 5, 6, 7
          (local.set $at{i}
            (i32.add
              (i32.load offset=8 (local.get $at{i}))
              (i32.shl
                (i32.gt_s
                  (i32.load8_s offset={i} (i32.add (i32.load (local.get $at{i})) (local.get $row)))
                  (i32.load offset=4 (local.get $at{i})))
                (i32.const 4))))
          ;; end
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br $deeper)))
      ;; each i: 0, 1, 2, 3, 4, 5, 6, 7
      (i32.store offset={i * 4} (local.get $exits) (i32.load offset=12 (local.get $at{i})))
      ;; end
      (local.set $row (i32.add (local.get $row) (i32.const 8)))
      (local.set $exits (i32.add (local.get $exits) (i32.const 32)))
      (br_if $nextRows (i32.ne (local.get $exits) (local.get $end)))))

  ;; What the leaves of 64 rows make of their scores.
  ;; each T Kind size shift: f32 Floats 4 2, f64 Doubles 8 3
  (func $add{Kind} (param $scores i32) (param $leaves i32) (param $exits i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $exits) (i32.const 256)))
    (loop $next
      ;; each i: 0, 1, 2, 3, 4, 5, 6, 7
      ({T}.store offset={i * size} (local.get $scores)
        ({T}.add
          ({T}.load offset={i * size} (local.get $scores))
          ({T}.load (i32.add (local.get $leaves) (i32.shl (i32.load offset={i * 4} (local.get $exits)) (i32.const {shift}))))))
      ;; end
      (local.set $scores (i32.add (local.get $scores) (i32.const {8 * size})))
      (local.set $exits (i32.add (local.get $exits) (i32.const 32)))
      (br_if $next (i32.ne (local.get $exits) (local.get $end)))))
  ;; end

  ;; Runs trees over a block of rows, a multiple of 64. A tree: groups of leaves (0: it is walked), depth, where its entries or its root
  ;; lie, how many targets it has; for each of them: where its scores lie, and its leaves. `double`: 1 if they are float64.
  (func (export "scoreBlock")
    (param $tree i32) (param $end i32) (param $rows i32) (param $double i32) (param $exits i32)
    (local $row i32) (local $target i32) (local $lastTarget i32) (local $scores i32) (local $leaves i32) (local $rowBytes i32)
    (local.set $rowBytes (i32.add (i32.const 2) (local.get $double)))
    (block $through
      (loop $nextTree
        (br_if $through (i32.eq (local.get $tree) (local.get $end)))
        (local.set $lastTarget
          (i32.add
            (i32.add (local.get $tree) (i32.const 16))
            (i32.shl (i32.load offset=12 (local.get $tree)) (i32.const 3))))
        (local.set $row (i32.const 0))
        (loop $nextRows
          (if (i32.load (local.get $tree))
            (then
              (call $leavesByBits
                (i32.load (local.get $tree))
                (i32.load offset=8 (local.get $tree))
                (local.get $row)
                (local.get $exits)))
            (else
              (call $leavesByWalking
                (i32.load offset=4 (local.get $tree))
                (i32.load offset=8 (local.get $tree))
                (local.get $row)
                (local.get $exits))))
          (local.set $target (i32.add (local.get $tree) (i32.const 16)))
          (block $allTargets
            (loop $nextTarget
              (br_if $allTargets (i32.eq (local.get $target) (local.get $lastTarget)))
              (local.set $scores
                (i32.add (i32.load (local.get $target)) (i32.shl (local.get $row) (local.get $rowBytes))))
              (local.set $leaves (i32.load offset=4 (local.get $target)))
              (if (local.get $double)
                (then (call $addDoubles (local.get $scores) (local.get $leaves) (local.get $exits)))
                (else (call $addFloats (local.get $scores) (local.get $leaves) (local.get $exits))))
              (local.set $target (i32.add (local.get $target) (i32.const 8)))
              (br $nextTarget)))
          (local.set $row (i32.add (local.get $row) (i32.const 64)))
          (br_if $nextRows (i32.lt_u (local.get $row) (local.get $rows))))
        (local.set $tree (local.get $lastTarget))
        (br $nextTree)))))
