;; Loops over rows of floats (f32) with the processor's vectors, for feature-loops.ts. Addresses and strides are bytes.
;;
;; Sums are exact. The numbers of a block of 2^b rows are multiples of the last bit of the smallest one, so float64 adds
;; them without rounding if their exponents differ by 29 - b at most. Others are split at one bit for all of a column,
;; which the largest number decides: the upper parts have at most the 53 bits that a float64 adds without rounding; so
;; have the lower parts if the exponents differ by 83 - 2 b at most.
;;
;; What is known of four columns side by side is stored in a record of 144 bytes, four numbers each:
;;   0  the least number of the block that is not NaN (f32)
;;  16  the greatest one (f32)
;;  32  its smallest magnitude but 0, less 1 in its last bit: that of 0 is the largest of all (i32)
;;  48  minus the rows of all blocks that are not NaN (i32)
;;  64  the sums of the block (f64), NaN as 0
;;  96  the least number of all blocks before (f32)
;; 112  the greatest one (f32)
;; 128  -1 if the sums of all blocks before are exact, else 0 (i32)
(module
  (import "memory" "memory" (memory 4096))

  ;; Begins with the first `columns` columns, at least four; their records are at `records`.
  (func (export "begin") (param $columns i32) (param $records i32)
    (local $end i32)
    (local.set $end
      (i32.add (local.get $records)
        (i32.mul (i32.shr_u (i32.add (local.get $columns) (i32.const 3)) (i32.const 2)) (i32.const 144))))
    (loop $next
      (call $beginBlock (local.get $records))
      (v128.store offset=48 (local.get $records) (v128.const i32x4 0 0 0 0))
      (v128.store offset=96 (local.get $records) (v128.const f32x4 inf inf inf inf))
      (v128.store offset=112 (local.get $records) (v128.const f32x4 -inf -inf -inf -inf))
      (v128.store offset=128 (local.get $records) (v128.const i32x4 -1 -1 -1 -1))
      (local.set $records (i32.add (local.get $records) (i32.const 144)))
      (br_if $next (i32.lt_u (local.get $records) (local.get $end)))))

  (func $beginBlock (param $record i32)
    (v128.store (local.get $record) (v128.const f32x4 inf inf inf inf))
    (v128.store offset=16 (local.get $record) (v128.const f32x4 -inf -inf -inf -inf))
    (v128.store offset=32 (local.get $record) (v128.const i32x4 -1 -1 -1 -1))
    (v128.store offset=64 (local.get $record) (v128.const f64x2 0 0))
    (v128.store offset=80 (local.get $record) (v128.const f64x2 0 0)))

  ;; Adds `rows` rows, whose starts are `stride` apart, in blocks of 2^b rows. Stores the sums of each block at `sums`, two
  ;; numbers (f64) for each column whose sum is the column's: the first ones of all columns, then the second ones.
  (func (export "add")
    (param $at i32) (param $stride i32) (param $columns i32) (param $rows i32) (param $b i32) (param $records i32)
    (param $sums i32)
    (local $many i32) (local $column i32) (local $offset i32) (local $record i32)
    (block $through
      (loop $nextBlock
        (br_if $through (i32.eqz (local.get $rows)))
        (local.set $many (i32.shl (i32.const 1) (local.get $b)))
        (if (i32.lt_u (local.get $rows) (local.get $many)) (then (local.set $many (local.get $rows))))
        (call $readBlock
          (local.get $at) (local.get $stride) (local.get $columns) (local.get $many) (local.get $records))
        (local.set $column (i32.const 0))
        (local.set $record (local.get $records))
        (loop $nextFour
          (local.set $offset (call $offsetOf (local.get $column) (local.get $columns)))
          (call $endBlock
            (i32.add (local.get $at) (local.get $offset)) (local.get $stride) (local.get $many) (local.get $b)
            (local.get $record)
            (i32.add (local.get $sums) (i32.shl (local.get $offset) (i32.const 1)))
            (i32.shl (local.get $columns) (i32.const 3)))
          (local.set $column (i32.add (local.get $column) (i32.const 4)))
          (local.set $record (i32.add (local.get $record) (i32.const 144)))
          (br_if $nextFour (i32.lt_u (local.get $column) (local.get $columns))))
        (local.set $rows (i32.sub (local.get $rows) (local.get $many)))
        (local.set $at (i32.add (local.get $at) (i32.mul (local.get $many) (local.get $stride))))
        (local.set $sums (i32.add (local.get $sums) (i32.shl (local.get $columns) (i32.const 4))))
        (br $nextBlock))))

  ;; Bytes from the start of a row to four columns. The last four may be among those before, too.
  (func $offsetOf (param $column i32) (param $columns i32) (result i32)
    (i32.shl
      (select (local.get $column) (i32.sub (local.get $columns) (i32.const 4))
        (i32.le_u (i32.add (local.get $column) (i32.const 4)) (local.get $columns)))
      (i32.const 2)))

  ;; Reads a block, 128 rows of four columns at a time: what is read of them stays in the processor's first cache.
  (func $readBlock
    (param $at i32) (param $stride i32) (param $columns i32) (param $rows i32) (param $records i32)
    (local $some i32) (local $column i32) (local $record i32)
    (loop $nextRows
      (local.set $some
        (select (local.get $rows) (i32.const 128) (i32.lt_u (local.get $rows) (i32.const 128))))
      (local.set $column (i32.const 0))
      (local.set $record (local.get $records))
      (loop $nextFour
        (call $readFour
          (i32.add (local.get $at) (call $offsetOf (local.get $column) (local.get $columns)))
          (local.get $stride) (local.get $some) (local.get $record))
        (local.set $column (i32.add (local.get $column) (i32.const 4)))
        (local.set $record (i32.add (local.get $record) (i32.const 144)))
        (br_if $nextFour (i32.lt_u (local.get $column) (local.get $columns))))
      (local.set $at (i32.add (local.get $at) (i32.mul (local.get $some) (local.get $stride))))
      (local.set $rows (i32.sub (local.get $rows) (local.get $some)))
      (br_if $nextRows (local.get $rows))))

  ;; NaN counts as 0 in sums, and is neither the least nor the greatest.
  (func $readFour (param $at i32) (param $stride i32) (param $rows i32) (param $record i32)
    (local $end i32) (local $x v128) (local $isNumber v128)
    (local $least v128) (local $greatest v128) (local $smallest v128) (local $numbers v128)
    (local $sumAb v128) (local $sumCd v128)
    (local.set $least (v128.load (local.get $record)))
    (local.set $greatest (v128.load offset=16 (local.get $record)))
    (local.set $smallest (v128.load offset=32 (local.get $record)))
    (local.set $numbers (v128.load offset=48 (local.get $record)))
    (local.set $sumAb (v128.load offset=64 (local.get $record)))
    (local.set $sumCd (v128.load offset=80 (local.get $record)))
    (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (local.get $stride))))
    (loop $next
      (local.set $x (v128.load (local.get $at)))
      (local.set $isNumber (f32x4.eq (local.get $x) (local.get $x)))
      (local.set $numbers (i32x4.add (local.get $numbers) (local.get $isNumber)))
      (local.set $least (f32x4.pmin (local.get $least) (local.get $x)))
      (local.set $greatest (f32x4.pmax (local.get $greatest) (local.get $x)))
      (local.set $smallest
        (i32x4.min_u (local.get $smallest)
          (i32x4.add
            (v128.and (local.get $x) (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
            (v128.const i32x4 -1 -1 -1 -1))))
      (local.set $x (v128.and (local.get $x) (local.get $isNumber)))
      (local.set $sumAb (f64x2.add (local.get $sumAb) (f64x2.promote_low_f32x4 (local.get $x))))
      (local.set $sumCd
        (f64x2.add (local.get $sumCd)
          (f64x2.promote_low_f32x4
            (i8x16.shuffle 8 9 10 11 12 13 14 15 8 9 10 11 12 13 14 15 (local.get $x) (local.get $x)))))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (br_if $next (i32.ne (local.get $at) (local.get $end))))
    (v128.store (local.get $record) (local.get $least))
    (v128.store offset=16 (local.get $record) (local.get $greatest))
    (v128.store offset=32 (local.get $record) (local.get $smallest))
    (v128.store offset=48 (local.get $record) (local.get $numbers))
    (v128.store offset=64 (local.get $record) (local.get $sumAb))
    (v128.store offset=80 (local.get $record) (local.get $sumCd)))

  ;; Stores the sums of a block of four columns at `sums`, and `plane` bytes further on; begins the next block.
  (func $endBlock
    (param $at i32) (param $stride i32) (param $rows i32) (param $b i32) (param $record i32) (param $sums i32)
    (param $plane i32)
    (local $unsigned v128) (local $least v128) (local $greatest v128) (local $exponent v128) (local $range v128)
    (local.set $unsigned (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
    (local.set $least (v128.load (local.get $record)))
    (local.set $greatest (v128.load offset=16 (local.get $record)))
    ;; The exponent of the largest magnitude, and what that of the smallest one is less. An infinite one's is 255.
    (local.set $exponent
      (i32x4.shr_u
        (i32x4.max_u
          (v128.and (local.get $least) (local.get $unsigned))
          (v128.and (local.get $greatest) (local.get $unsigned)))
        (i32.const 23)))
    (local.set $range
      (i32x4.sub (local.get $exponent)
        (i32x4.shr_u
          (i32x4.add (v128.load offset=32 (local.get $record)) (v128.const i32x4 1 1 1 1))
          (i32.const 23))))
    (if
      (i32x4.all_true
        (i32x4.le_s (local.get $range) (i32x4.splat (i32.sub (i32.const 29) (local.get $b)))))
      (then
        (v128.store (local.get $sums) (v128.load offset=64 (local.get $record)))
        (v128.store offset=16 (local.get $sums) (v128.load offset=80 (local.get $record)))
        (local.set $sums (i32.add (local.get $sums) (local.get $plane)))
        (v128.store (local.get $sums) (v128.const f64x2 0 0))
        (v128.store offset=16 (local.get $sums) (v128.const f64x2 0 0)))
      (else
        (call $splitFour
          (local.get $at) (local.get $stride) (local.get $rows) (local.get $b) (local.get $exponent)
          (local.get $sums) (local.get $plane))))
    (v128.store offset=96 (local.get $record)
      (f32x4.pmin (v128.load offset=96 (local.get $record)) (local.get $least)))
    (v128.store offset=112 (local.get $record)
      (f32x4.pmax (v128.load offset=112 (local.get $record)) (local.get $greatest)))
    (v128.store offset=128 (local.get $record)
      (v128.and (v128.load offset=128 (local.get $record))
        (v128.or
          (f32x4.gt (local.get $least) (local.get $greatest)) ;; all are NaN
          (v128.and
            (i32x4.lt_s (local.get $exponent) (v128.const i32x4 255 255 255 255))
            (i32x4.le_s (local.get $range)
              (i32x4.splat (i32.sub (i32.const 83) (i32.shl (local.get $b) (i32.const 1)))))))))
    (call $beginBlock (local.get $record)))

  ;; Stores at `sums` and `plane` bytes further on the sums of the upper and of the lower parts of four columns, of `rows`
  ;; rows, at most 2^b. `exponent`: those of the largest magnitudes.
  (func $splitFour
    (param $at i32) (param $stride i32) (param $rows i32) (param $b i32) (param $exponent v128) (param $sums i32)
    (param $plane i32)
    (local $end i32) (local $x v128) (local $half v128) (local $upper v128) (local $splitAb v128) (local $splitCd v128)
    (local $upperAb v128) (local $upperCd v128) (local $lowerAb v128) (local $lowerCd v128)
    ;; What splits numbers is 1.5 · 2^(exponent - 127 + b): added and taken off again, it rounds to a multiple of the
    ;; lowest bit of the upper part. Its bits are made here.
    (local.set $splitAb
      (i64x2.add
        (i64x2.shl
          (i64x2.add
            (i64x2.extend_low_i32x4_u (local.get $exponent))
            (i64x2.splat (i64.extend_i32_u (i32.add (i32.const 896) (local.get $b)))))
          (i32.const 52))
        (v128.const i64x2 0x8000000000000 0x8000000000000)))
    (local.set $splitCd
      (i64x2.add
        (i64x2.shl
          (i64x2.add
            (i64x2.extend_high_i32x4_u (local.get $exponent))
            (i64x2.splat (i64.extend_i32_u (i32.add (i32.const 896) (local.get $b)))))
          (i32.const 52))
        (v128.const i64x2 0x8000000000000 0x8000000000000)))
    (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (local.get $stride))))
    (loop $next
      (local.set $x (v128.load (local.get $at)))
      (local.set $x (v128.and (local.get $x) (f32x4.eq (local.get $x) (local.get $x))))
      (local.set $half (f64x2.promote_low_f32x4 (local.get $x)))
      (local.set $upper
        (f64x2.sub (f64x2.add (local.get $half) (local.get $splitAb)) (local.get $splitAb)))
      (local.set $upperAb (f64x2.add (local.get $upperAb) (local.get $upper)))
      (local.set $lowerAb (f64x2.add (local.get $lowerAb) (f64x2.sub (local.get $half) (local.get $upper))))
      (local.set $half
        (f64x2.promote_low_f32x4
          (i8x16.shuffle 8 9 10 11 12 13 14 15 8 9 10 11 12 13 14 15 (local.get $x) (local.get $x))))
      (local.set $upper
        (f64x2.sub (f64x2.add (local.get $half) (local.get $splitCd)) (local.get $splitCd)))
      (local.set $upperCd (f64x2.add (local.get $upperCd) (local.get $upper)))
      (local.set $lowerCd (f64x2.add (local.get $lowerCd) (f64x2.sub (local.get $half) (local.get $upper))))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (br_if $next (i32.ne (local.get $at) (local.get $end))))
    (v128.store (local.get $sums) (local.get $upperAb))
    (v128.store offset=16 (local.get $sums) (local.get $upperCd))
    (local.set $sums (i32.add (local.get $sums) (local.get $plane)))
    (v128.store (local.get $sums) (local.get $lowerAb))
    (v128.store offset=16 (local.get $sums) (local.get $lowerCd)))

  ;; Stores what is known of each column at `to`, seven numbers (f64) in the order of `countOf`. Returns 0 if all sums are
  ;; exact; where they are not, a column's count of finite numbers is -1.
  (func (export "end") (param $columns i32) (param $rows i32) (param $records i32) (param $to i32) (result i32)
    (local $column i32) (local $offset i32) (local $lane i32) (local $record i32) (local $place i32) (local $numbers i32)
    (local $bad i32)
    (local.set $record (local.get $records))
    (loop $nextFour
      (local.set $offset (call $offsetOf (local.get $column) (local.get $columns)))
      (local.set $lane (i32.const 0))
      (loop $nextLane
        (local.set $place
          (i32.add (local.get $to) (i32.mul (i32.add (local.get $offset) (local.get $lane)) (i32.const 14))))
        (local.set $records (i32.add (local.get $record) (local.get $lane)))
        (local.set $numbers (i32.sub (i32.const 0) (i32.load offset=48 (local.get $records))))
        (f64.store (local.get $place) (f64.const 0))
        (f64.store offset=8 (local.get $place)
          (f64.convert_i32_u (i32.sub (local.get $rows) (local.get $numbers))))
        (f64.store offset=16 (local.get $place) (f64.const 0))
        (f64.store offset=24 (local.get $place) (f64.const 0))
        (if (i32.load offset=128 (local.get $records))
          (then (f64.store offset=32 (local.get $place) (f64.convert_i32_u (local.get $numbers))))
          (else
            (f64.store offset=32 (local.get $place) (f64.const -1))
            (local.set $bad (i32.const 1))))
        ;; -0 becomes 0.
        (f64.store offset=40 (local.get $place)
          (f64.add (f64.promote_f32 (f32.load offset=96 (local.get $records))) (f64.const 0)))
        (f64.store offset=48 (local.get $place)
          (f64.add (f64.promote_f32 (f32.load offset=112 (local.get $records))) (f64.const 0)))
        (local.set $lane (i32.add (local.get $lane) (i32.const 4)))
        (br_if $nextLane (i32.lt_u (local.get $lane) (i32.const 16))))
      (local.set $column (i32.add (local.get $column) (i32.const 4)))
      (local.set $record (i32.add (local.get $record) (i32.const 144)))
      (br_if $nextFour (i32.lt_u (local.get $column) (local.get $columns))))
    (local.get $bad)))
